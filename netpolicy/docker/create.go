package docker

import (
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// taker reads one field of a body. keep is false for what is left out: the engine
// then does what it does without the field.
type taker func(s *Set, v strictjson.Value) (out strictjson.Value, keep bool, err error)

// fields is what a body may hold. Anything else must be empty, and is left out:
// clients send every field that they know.
type fields map[string]taker

// read gives the fields of an object that go out. what names it in errors.
func (f fields) read(s *Set, what string, v strictjson.Value) (map[string]strictjson.Value, error) {
	if v.Kind() != strictjson.Object {
		return nil, malformed("%s is not an object", what)
	}
	out := map[string]strictjson.Value{}
	for _, m := range v.Members() {
		take, known := f[m.Name]
		if !known {
			if !isEmpty(m.Value) {
				return nil, deny("%s.%s is not allowed", what, clip(m.Name))
			}
			continue
		}
		value, keep, err := take(s, m.Value)
		if r, ok := err.(*Refused); ok {
			return nil, &Refused{r.Status, what + "." + m.Name + " " + r.Reason}
		}
		if err != nil {
			return nil, err
		}
		if keep {
			out[m.Name] = value
		}
	}
	return out, nil
}

// isEmpty tells whether a value says nothing, whatever its field is.
func isEmpty(v strictjson.Value) bool {
	switch v.Kind() {
	case strictjson.Null:
		return true
	case strictjson.Bool:
		return v.Text() == "false"
	case strictjson.Number:
		n, ok := v.Int() // "-0" is zero as well
		return ok && n == 0
	case strictjson.String:
		return v.Text() == ""
	case strictjson.Array:
		return len(v.Items()) == 0
	case strictjson.Object:
		return len(v.Members()) == 0
	}
	return false
}

// isHollow tells the same of an object whose members say nothing either.
func isHollow(v strictjson.Value) bool {
	for _, m := range v.Members() {
		if !isHollow(m.Value) {
			return false
		}
	}
	return v.Kind() == strictjson.Object || isEmpty(v)
}

func objectOf(m map[string]strictjson.Value, order []string) strictjson.Value {
	var members []strictjson.Member
	for _, name := range order {
		if v, ok := m[name]; ok {
			members = append(members, strictjson.Member{Name: name, Value: v})
		}
	}
	return strictjson.ObjectOf(members...)
}

// configFields are those of a container's own configuration.
func configFields() fields {
	return fields{
		"Image": func(s *Set, v strictjson.Value) (strictjson.Value, bool, error) {
			name, err := s.image(v.Text())
			return strictjson.TextOf(name), true, err
		},
		"Hostname": textOf(isWordOf), "User": textOf(isUser), "WorkingDir": textOf(isText), "StopSignal": textOf(isWordOf),
		"AttachStdin": flag, "AttachStdout": flag, "AttachStderr": flag, "Tty": flag, "OpenStdin": flag, "StdinOnce": flag, "NetworkDisabled": flag,
		"Env": texts, "Cmd": texts, "Entrypoint": texts, "Labels": labels, "StopTimeout": number(0, 3600),
	}
}

// hostFields are those of what the host gives to a container.
func hostFields() fields {
	const none = "is for the host to say"
	return fields{
		"Memory": (*Set).memory, "MemorySwap": (*Set).swap, "NanoCpus": (*Set).cpus, "PidsLimit": (*Set).pids, "ShmSize": (*Set).shm,
		"CapAdd": capAdd, "CapDrop": capDrop, "SecurityOpt": securityOpt, "Tmpfs": tmpfs, "Ulimits": ulimits,
		"Init": flag, "AutoRemove": flag, "ReadonlyRootfs": flag, "ConsoleSize": sizes,
		"NetworkMode":      oneOf("has to be none: a container has no network", "", "none", "default"),
		"IpcMode":          oneOf("has to be private", "", "private", "none"),
		"CgroupnsMode":     oneOf("has to be private", "", "private"),
		"RestartPolicy":    restartPolicy,
		"LogConfig":        hollow("is for the host to say"),
		"MemorySwappiness": unless("-1", none),
		// An empty list is not nothing: it takes away what is there without one.
		"MaskedPaths":   onlyNull("uncovers what the engine covers"),
		"ReadonlyPaths": onlyNull("opens what the engine protects"),
	}
}

// The order in which fields are written.
func configOrder() []string {
	return []string{
		"Hostname", "User", "AttachStdin", "AttachStdout", "AttachStderr", "Tty", "OpenStdin", "StdinOnce", "Env", "Cmd", "Image", "WorkingDir", "Entrypoint",
		"NetworkDisabled", "Labels", "StopSignal", "StopTimeout", "HostConfig",
	}
}

func hostOrder() []string {
	return []string{
		"NetworkMode", "IpcMode", "CgroupnsMode", "AutoRemove", "Init", "ReadonlyRootfs", "ConsoleSize", "CapAdd", "CapDrop", "SecurityOpt", "Tmpfs", "Ulimits",
		"Memory", "MemorySwap", "NanoCpus", "PidsLimit", "ShmSize",
	}
}

// judgeCreate writes the body of a container anew: what may be said, and what has
// to be.
func (s *Set) judgeCreate(c *Call, r Request) error {
	body, err := strictjson.Parse(r.Body)
	if err != nil {
		return malformed("the body: %v", err)
	}
	config := configFields()
	var host map[string]strictjson.Value
	config["HostConfig"] = func(s *Set, v strictjson.Value) (out strictjson.Value, keep bool, err error) {
		if v.Kind() != strictjson.Null {
			host, err = hostFields().read(s, "HostConfig", v)
		}
		return out, false, err
	}
	config["NetworkingConfig"] = networkingConfig
	out, err := config.read(s, "Config", body)
	if err != nil {
		return trimConfig(err)
	}
	if _, ok := out["Image"]; !ok {
		return malformed("the container has no image")
	}
	if host == nil {
		host = map[string]strictjson.Value{}
	}
	s.impose(out, host)
	out["HostConfig"] = objectOf(host, hostOrder())
	c.Body = objectOf(out, configOrder()).Append(nil)
	return nil
}

// trimConfig names fields of the body as their clients know them.
func trimConfig(err error) error {
	if r, ok := err.(*Refused); ok {
		return &Refused{r.Status, strings.TrimPrefix(strings.TrimPrefix(r.Reason, "Config.HostConfig "), "Config.")}
	}
	return err
}

// defaultCaps are what a container may have, and has when it asks for nothing.
var defaultCaps = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"} //nolint:gochecknoglobals // a constant

// impose sets what every container gets, whatever was asked for.
func (s *Set) impose(out, host map[string]strictjson.Value) {
	run := strictjson.TextOf(s.run)
	if labels, ok := out["Labels"]; ok {
		out["Labels"] = labels.With(Label, run)
	} else {
		out["Labels"] = strictjson.ObjectOf(strictjson.Member{Name: Label, Value: run})
	}
	text := strictjson.TextOf
	if _, ok := host["CapDrop"]; !ok {
		if _, ok := host["CapAdd"]; !ok {
			var all []strictjson.Value
			for _, name := range defaultCaps {
				all = append(all, text(name))
			}
			host["CapAdd"] = strictjson.ListOf(all...)
		}
	}
	host["CapDrop"] = strictjson.ListOf(text("ALL"))
	host["SecurityOpt"] = strictjson.ListOf(text("no-new-privileges:true"))
	host["NetworkMode"], host["CgroupnsMode"] = text("none"), text("private")
	if v := host["IpcMode"]; v.Text() == "" {
		host["IpcMode"] = text("private")
	}
	for name, most := range map[string]int64{"Memory": s.policy.MemoryLimit(), "NanoCpus": int64(s.policy.CPULimit()) * 1e9, "PidsLimit": int64(s.policy.PidsLimit())} {
		if _, ok := host[name]; !ok {
			host[name] = strictjson.IntOf(most)
		}
	}
	host["MemorySwap"] = host["Memory"] // no swap on top of it
}
