package policy

// Supervise starts the command again when it ends, and further services beside
// it in the same sandbox. The zero value supervises nothing: the run ends with
// the command.
type Supervise struct {
	// Restart says when the command is started again: "never" (the default),
	// "on-failure" (it was killed, or its exit code is not 0), or "always".
	Restart string `yaml:"restart" json:"restart,omitzero" enum:"never,on-failure,always" tighten:"fixed"`
	// Backoff is the pause before the first restart. It doubles each time, up to
	// "backoff_max". 0: 1s.
	Backoff Duration `yaml:"backoff" json:"backoff,omitzero" tighten:"fixed"`
	// BackoffMax is the longest pause. 0: 30s.
	BackoffMax Duration `yaml:"backoff_max" json:"backoff_max,omitzero" tighten:"fixed"`
	// ResetAfter is how long the command must have run for the pauses to begin
	// anew. 0: 10s.
	ResetAfter Duration `yaml:"reset_after" json:"reset_after,omitzero" tighten:"fixed"`
	// Burst is how often the command may be started "within". Instead of once
	// more it is given up, and the run ends with its last exit code. 0: 5.
	Burst int `yaml:"burst" json:"burst,omitzero" tighten:"fixed"`
	// Within is the time in which starts are counted. 0: 2m.
	Within Duration `yaml:"within" json:"within,omitzero" tighten:"fixed"`
	// RestartStatus lists exit codes with which the command asks to be started
	// again at once, whatever "restart" says. They do not count as failures, and
	// such starts do not count for "burst"; one that asks sooner than "backoff"
	// after its start waits until then.
	RestartStatus []int `yaml:"restart_status" json:"restart_status,omitzero" max:"255" tighten:"fixed"`
	// FatalStatus lists exit codes after which a restart would be of no use: the
	// command is given up, whatever "restart" says.
	FatalStatus []int `yaml:"fatal_status" json:"fatal_status,omitzero" max:"255" tighten:"fixed"`
	// Notify gives the command a socket for sd_notify(3). The run is ready when
	// the command says so, and its messages are passed on to the service manager
	// outside, if there is one.
	Notify bool `yaml:"notify" json:"notify,omitzero" tighten:"fixed"`
	// Health is how the command is asked whether it works.
	Health Health `yaml:"health" json:"health,omitzero"`
	// Services run beside the command in the same sandbox, by name.
	Services map[string]Service `yaml:"services" json:"services,omitzero" key:"rule-name" tighten:"fixed"`
	// Log is where the output of the command and its services is kept.
	Log SuperviseLog `yaml:"log" json:"log,omitzero"`
}

// Service is one more process that is kept running in the sandbox. Absent keys
// mean what they mean for the command.
type Service struct {
	// Command is the program and its arguments.
	Command []string `yaml:"command" json:"command,omitzero" required:"true" nonempty:"true"`
	// After names services (or "main", the command) that must be up first: to have
	// said so where they notify, to be healthy if they have a health check,
	// otherwise to run. They are stopped after this one. If one of them is given
	// up before it was up, so is this one.
	After []Name `yaml:"after" json:"after,omitzero" is:"rule-name"`
	// Env sets variables for this service only. ${VAR} of the path variables is
	// expanded.
	Env map[string]string `yaml:"env" json:"env,omitzero" key:"env-name"`
	// Restart is as for the command; absent: on-failure.
	Restart string `yaml:"restart" json:"restart,omitzero" enum:"never,on-failure,always"`
	// Backoff is as for the command.
	Backoff Duration `yaml:"backoff" json:"backoff,omitzero"`
	// BackoffMax is as for the command.
	BackoffMax Duration `yaml:"backoff_max" json:"backoff_max,omitzero"`
	// ResetAfter is as for the command.
	ResetAfter Duration `yaml:"reset_after" json:"reset_after,omitzero"`
	// Burst is as for the command, but only this service is given up.
	Burst int `yaml:"burst" json:"burst,omitzero"`
	// Within is as for the command.
	Within Duration `yaml:"within" json:"within,omitzero"`
	// RestartStatus is as for the command.
	RestartStatus []int `yaml:"restart_status" json:"restart_status,omitzero" max:"255"`
	// FatalStatus is as for the command.
	FatalStatus []int `yaml:"fatal_status" json:"fatal_status,omitzero" max:"255"`
	// StopGrace is how long it has after SIGTERM before SIGKILL. 0: process.stop_grace.
	StopGrace Duration `yaml:"stop_grace" json:"stop_grace,omitzero"`
	// Health is how it is asked whether it works.
	Health Health `yaml:"health" json:"health,omitzero"`
	Pos    Pos    `yaml:"-" json:"pos,omitzero"`
}

// Health is a check by HTTP of a port inside. Without a url there is none.
type Health struct {
	// URL is asked with GET: "http://127.0.0.1:8642/health". Only the sandbox's
	// own loopback is asked. An answer of 200 to 399 is healthy.
	URL string `yaml:"url" json:"url,omitzero" is:"health-url" tighten:"fixed"`
	// Interval is the time between two checks. 0: 10s.
	Interval Duration `yaml:"interval" json:"interval,omitzero" tighten:"fixed"`
	// Timeout is how long one answer may take. 0: 5s. Redirects are not followed.
	Timeout Duration `yaml:"timeout" json:"timeout,omitzero" tighten:"fixed"`
	// Failures in a row after which the service is stopped, and started again as
	// after a failure. 0: 3.
	Failures int `yaml:"failures" json:"failures,omitzero" tighten:"fixed"`
	// Grace is how long after its start a service need not answer. 0: 30s.
	Grace Duration `yaml:"grace" json:"grace,omitzero" tighten:"fixed"`
}

// SuperviseLog is where output is kept: one line each, with the time and the name
// of the service. Output goes to standard output as well.
type SuperviseLog struct {
	// File is the log. Absent: "log" in the session's directory. It must lie
	// outside every granted path.
	File Path `yaml:"file" json:"file,omitzero" is:"no-glob" tighten:"fixed"`
	// MaxSize is where the file is rotated (bytes). 0: 16M.
	MaxSize Size `yaml:"max_size" json:"max_size,omitzero" min:"65536" tighten:"fixed"`
	// Keep is how many rotated files are kept. 0: 4.
	Keep int `yaml:"keep" json:"keep,omitzero" max:"1000" tighten:"fixed"`
}

// Active tells whether the command or any service is kept running.
func (s Supervise) Active() bool {
	return s.Restart != "" && s.Restart != "never" || len(s.Services) > 0 || s.Notify || s.Health.URL != "" || len(s.RestartStatus) > 0
}
