package hermes

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Level says how much a finding matters.
type Level string

// The levels. A danger is open to others or loses money now; a warning is one
// step from it.
const (
	Danger  Level = "danger"
	Warning Level = "warning"
)

// Finding is one thing that endangers the owner, with one remedy.
type Finding struct {
	ID     string `json:"id"` // stable, for programs: "api-server-key"
	Level  Level  `json:"level"`
	Where  string `json:"where"`
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}

// Findings judges the installation, dangers first.
func (in Installation) Findings() []Finding {
	fs := []Finding{} // JSON says [] then
	for _, check := range []func(Installation) []Finding{
		readable, brokenLines, keys, apiServer, dashboard, hardStops, backend, approvals, allowAll, filesOfOthers,
	} {
		fs = append(fs, check(in)...)
	}
	slices.SortStableFunc(fs, func(a, b Finding) int { return cmp.Compare(a.Level, b.Level) })
	return fs
}

func (in Installation) envFile() string    { return filepath.Join(in.Home, ".env") }
func (in Installation) configFile() string { return filepath.Join(in.Home, "config.yaml") }

func readable(in Installation) (fs []Finding) {
	for _, err := range in.Unreadable {
		fs = append(fs, Finding{"unreadable", Warning, in.Home, err.Error(), "correct the file; Hermes ignores what it cannot read"})
	}
	return fs
}

// brokenLines are often a "=" that a console changed.
func brokenLines(in Installation) (fs []Finding) {
	for _, b := range in.Broken {
		what := "the line sets nothing"
		name, _, _ := strings.Cut(b.Value, " ")
		for i := range len(b.Value) { // a name is ASCII, and the line need not be UTF-8
			if !isName(b.Value[:i+1]) {
				name = b.Value[:i]
				break
			}
		}
		if isName(name) && strings.Contains(name, "_") {
			what = fmt.Sprintf("%s has no \"=\": a console that types what is pasted may have changed it", name)
		}
		fs = append(fs, Finding{"env-line", Danger, b.Place(), what, "write it again as NAME=VALUE, in an editor or over ssh"})
	}
	return fs
}

func keys(in Installation) (fs []Finding) {
	for i, v := range in.Variables {
		if v.Value == "" || slices.ContainsFunc(in.Variables[i+1:], func(w Variable) bool { return w.Name == v.Name }) {
			continue
		}
		secret := strings.HasSuffix(v.Name, "_KEY") || strings.HasSuffix(v.Name, "_TOKEN") || strings.HasSuffix(v.Name, "_SECRET")
		address := strings.HasSuffix(v.Name, "_URL") || strings.Contains(v.Name, "EMAIL")
		if !secret && !address || v.Name == "API_SERVER_KEY" {
			continue
		}
		if what := mangled(v.Name, v.Value); what != "" {
			fs = append(fs, Finding{
				"mangled-key", Danger, v.Place(), fmt.Sprintf("%s looks mangled: %s", v.Name, what),
				"paste it again over ssh or in an editor: web and serial consoles change : @ = and / on another keyboard layout",
			})
		}
	}
	return fs
}

func apiServer(in Installation) (fs []Finding) {
	enabled, _ := in.first("platforms.api_server.enabled", "gateway.platforms.api_server.enabled", "API_SERVER_ENABLED")
	key, keyPlace := in.first("platforms.api_server.key", "platforms.api_server.extra.key", "gateway.platforms.api_server.key", "API_SERVER_KEY")
	if !isTrue(enabled) && key == "" {
		return nil
	}
	const make16 = "set API_SERVER_KEY to the output of: openssl rand -hex 32"
	switch what := WeakKey(key); {
	case key == "":
		fs = append(fs, Finding{"api-server-key", Danger, in.envFile(), "the API server is enabled without a key", make16})
	case what != "":
		fs = append(fs, Finding{"api-server-key", Danger, keyPlace, "the API server's key is no real one: " + what, make16})
	}
	if cors, place := in.first("platforms.api_server.cors_origins", "platforms.api_server.extra.cors_origins", "API_SERVER_CORS_ORIGINS"); strings.Contains(cors, "*") {
		fs = append(fs, Finding{"api-server-cors", Danger, place, `the API server answers every web page (CORS "*")`, "list the origins that need it, or remove the setting"})
	}
	if host, place := in.first("platforms.api_server.host", "platforms.api_server.extra.host", "API_SERVER_HOST"); beyondLoopback(host) {
		fs = append(fs, Finding{"api-server-bind", Danger, place, fmt.Sprintf("the API server listens on %s, where the whole network reaches it", host), "set it to 127.0.0.1, and publish the port in the policy with expose, TLS and a source list if others need it"})
	}
	return fs
}

func dashboard(in Installation) (fs []Finding) {
	host, place := in.first("dashboard.host", "HERMES_DASHBOARD_HOST", "DASHBOARD_HOST")
	if beyondLoopback(host) {
		fs = append(fs, Finding{"dashboard-bind", Danger, place, fmt.Sprintf("the dashboard listens on %s, where the whole network reaches it", host), "set it to 127.0.0.1 and reach it through ssh -L 9119:127.0.0.1:9119"})
	}
	return fs
}

func beyondLoopback(host string) bool {
	host = strings.Trim(strings.TrimSpace(host), "[]")
	if host == "" || host == "localhost" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// channels are the variables whose presence makes a gateway answer somebody.
var channels = []struct{ variable, fragment, name string }{
	{"TELEGRAM_BOT_TOKEN", "channel/telegram", "Telegram"},
	{"DISCORD_BOT_TOKEN", "channel/discord", "Discord"},
	{"SLACK_BOT_TOKEN", "channel/slack", "Slack"},
	{"WHATSAPP_ENABLED", "channel/whatsapp", "WhatsApp"},
	{"MATRIX_ACCESS_TOKEN", "channel/matrix", "Matrix"},
	{"SIGNAL_ACCOUNT", "channel/signal", "Signal"},
	{"EMAIL_ADDRESS", "channel/email", "mail"},
}

// unattended tells whether the gateway answers others, and on what.
func (in Installation) unattended() (on []string) {
	for _, c := range channels {
		if _, ok := in.Value(c.variable); ok {
			on = append(on, c.name)
		}
	}
	if enabled, _ := in.first("platforms.api_server.enabled", "gateway.platforms.api_server.enabled", "API_SERVER_ENABLED"); isTrue(enabled) {
		on = append(on, "the API server")
	}
	return on
}

// hardStops: Hermes' hard stops for runs without a person are on by default, but do
// not count the API server as one of those.
func hardStops(in Installation) []Finding {
	const section = "tool_loop_guardrails."
	on := in.unattended()
	if len(on) == 0 || isTrue(in.Setting(section+"hard_stop_enabled")) {
		return nil
	}
	what := ""
	if unattended := in.Setting(section + "non_interactive_hard_stop_enabled"); unattended != "" && !isTrue(unattended) {
		what = strings.Join(on, ", ")
	} else if slices.Contains(on, "the API server") {
		what = "the API server"
	}
	if what == "" {
		return nil
	}
	return []Finding{{
		"hard-stops", Danger, in.configFile() + ": tool_loop_guardrails",
		fmt.Sprintf("the gateway answers %s unattended and without hard stops: a loop goes on at your expense", what),
		"set tool_loop_guardrails.hard_stop_enabled: true, and inference.budget in the policy",
	}}
}

func backend(in Installation) []Finding {
	name, place := in.first("terminal.backend", "TERMINAL_ENV")
	if name == "" || name == "local" {
		return nil
	}
	return []Finding{{
		"terminal-backend", Warning, place,
		fmt.Sprintf("the terminal backend %q confines shell commands only; code execution, MCP servers, plugins, hooks and skills run outside of it", name),
		"start Hermes by hermes-wrap, which confines all of them, and set terminal.backend: local inside",
	}}
}

func approvals(in Installation) (fs []Finding) {
	for _, name := range []string{"HERMES_YOLO_MODE", "HERMES_ACCEPT_HOOKS"} {
		if v, ok := in.Value(name); ok && isTrue(v.Value) {
			fs = append(fs, Finding{
				"auto-approval", Warning, v.Place(), name + " lets the agent act without asking",
				"remove it here; inside hermes-wrap it can be set in a policy (env.set), where the sandbox is the limit",
			})
		}
	}
	return fs
}

func allowAll(in Installation) (fs []Finding) {
	if v, ok := in.Value("GATEWAY_ALLOW_ALL_USERS"); ok && isTrue(v.Value) {
		fs = append(fs, Finding{"allow-all", Danger, v.Place(), "everybody who finds the bot may give it orders", "remove it and list the users that may"})
	}
	return fs
}

// private are what nobody else may read, and what nobody else may write.
var private = []struct {
	name  string
	mask  os.FileMode
	level Level
	what  string
}{
	{".env", 0o077, Danger, "others can read the keys in it"},
	{"auth.json", 0o077, Danger, "others can read the logins in it"},
	{"config.yaml", 0o022, Danger, "others can change what Hermes does"},
	{"SOUL.md", 0o022, Danger, "others can change what Hermes does"},
	{"hooks", 0o022, Danger, "others can have Hermes run their programs"},
	{"plugins", 0o022, Danger, "others can have Hermes run their programs"},
	{"skills", 0o022, Danger, "others can have Hermes run their programs"},
	{"scripts", 0o022, Danger, "others can have Hermes run their programs"},
	{"", 0o022, Danger, "others can put files into it"},
}

func filesOfOthers(in Installation) (fs []Finding) {
	for _, p := range private {
		path := filepath.Join(in.Home, p.name)
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&p.mask == 0 {
			continue
		}
		remedy := "chmod go-w " + path
		if p.mask&0o044 != 0 {
			remedy = "chmod 600 " + path
		}
		fs = append(fs, Finding{"file-mode", p.level, path, fmt.Sprintf("its mode is %04o: %s", info.Mode().Perm(), p.what), remedy})
	}
	return fs
}
