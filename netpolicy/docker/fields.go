package docker

import (
	"path"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// maxItems bounds lists and objects in a body.
const maxItems = 4096

func reject(format string, args ...any) (strictjson.Value, bool, error) {
	return strictjson.Value{}, false, deny(format, args...)
}

func leaveOut() (strictjson.Value, bool, error) { return strictjson.Value{}, false, nil }

func flag(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	switch v.Kind() {
	case strictjson.Null:
		return leaveOut()
	case strictjson.Bool:
		return v, true, nil
	}
	return reject("is neither true nor false")
}

func textOf(fits func(string) bool) taker {
	return func(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
		switch {
		case isEmpty(v):
			return leaveOut()
		case v.Kind() != strictjson.String || !fits(v.Text()):
			return reject("has a value that is not allowed")
		}
		return v, true, nil
	}
}

func isUser(s string) bool {
	return len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-:") == ""
}

// texts is a list of texts, or one text, as the engine takes both.
func texts(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	switch v.Kind() {
	case strictjson.Null:
		return leaveOut()
	case strictjson.String:
		return strictjson.ListOf(v), true, nil
	case strictjson.Array:
		if len(v.Items()) > maxItems || slices.ContainsFunc(v.Items(), func(i strictjson.Value) bool { return i.Kind() != strictjson.String }) {
			return reject("is not a list of texts")
		}
		return v, true, nil
	}
	return reject("is not a list of texts")
}

func number(least, most int64) taker {
	return func(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
		if v.Kind() == strictjson.Null {
			return leaveOut()
		}
		n, ok := v.Int()
		if !ok || n < least || n > most {
			return reject("is not a number from %d to %d", least, most)
		}
		return strictjson.IntOf(n), true, nil
	}
}

// bounded is a limit that a container may lower, and not lift.
func bounded(v strictjson.Value, most int64) (strictjson.Value, bool, error) {
	if isEmpty(v) {
		return leaveOut()
	}
	n, ok := v.Int()
	if !ok || n < 0 {
		return reject("is not a number above 0: a container without this limit is not allowed")
	}
	if n > most {
		return reject("is %d, and the policy allows %d", n, most)
	}
	return strictjson.IntOf(n), true, nil
}

func (s *Set) memory(v strictjson.Value) (strictjson.Value, bool, error) {
	return bounded(v, s.policy.MemoryLimit())
}

func (s *Set) swap(v strictjson.Value) (strictjson.Value, bool, error) {
	_, _, err := bounded(v, s.policy.MemoryLimit())
	return strictjson.Value{}, false, err
}

func (s *Set) cpus(v strictjson.Value) (strictjson.Value, bool, error) {
	return bounded(v, int64(s.policy.CPULimit())*1e9)
}

func (s *Set) pids(v strictjson.Value) (strictjson.Value, bool, error) {
	return bounded(v, int64(s.policy.PidsLimit()))
}

func (s *Set) shm(v strictjson.Value) (strictjson.Value, bool, error) {
	return bounded(v, s.policy.MemoryLimit())
}

func oneOf(reason string, allowed ...string) taker {
	return func(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
		switch {
		case v.Kind() == strictjson.Null:
			return leaveOut()
		case v.Kind() != strictjson.String || !slices.Contains(allowed, v.Text()):
			return reject("%s", reason)
		}
		return v, v.Text() != "", nil
	}
}

func unless(text, reason string) taker {
	return func(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
		if isEmpty(v) || v.Kind() == strictjson.Number && v.Text() == text {
			return leaveOut()
		}
		return reject("%s", reason)
	}
}

func hollow(reason string) taker {
	return func(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
		if isHollow(v) {
			return leaveOut()
		}
		return reject("%s", reason)
	}
}

func onlyNull(reason string) taker {
	return func(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
		if v.Kind() == strictjson.Null {
			return leaveOut()
		}
		return reject("%s", reason)
	}
}

// labels are the client's own, but none of ours.
func labels(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	if v.Kind() == strictjson.Null {
		return leaveOut()
	}
	if v.Kind() != strictjson.Object || len(v.Members()) > maxItems {
		return reject("is not an object of texts")
	}
	for _, m := range v.Members() {
		switch {
		case m.Value.Kind() != strictjson.String:
			return reject("is not an object of texts")
		case strings.HasPrefix(strings.ToLower(strings.TrimSpace(m.Name)), "hermes-wrap"):
			return reject("holds %q, and such names are hermes-wrap's own", clip(m.Name))
		}
	}
	return v, true, nil
}

func capAdd(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	list, keep, err := texts(nil, v)
	if err != nil || !keep || len(list.Items()) == 0 {
		return strictjson.Value{}, false, err
	}
	var out []strictjson.Value
	for _, item := range list.Items() {
		name := strings.TrimPrefix(strings.ToUpper(item.Text()), "CAP_")
		if !slices.Contains(defaultCaps, name) {
			return reject("holds %q; a container may have %s", clip(item.Text()), strings.Join(defaultCaps, " "))
		}
		out = append(out, strictjson.TextOf(name))
	}
	return strictjson.ListOf(out...), true, nil
}

// capDrop is read for its form alone: everything is dropped.
func capDrop(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	list, keep, err := texts(nil, v)
	if err != nil || !keep || len(list.Items()) == 0 {
		return strictjson.Value{}, false, err
	}
	return list, true, nil
}

func securityOpt(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	list, keep, err := texts(nil, v)
	if err != nil || !keep {
		return strictjson.Value{}, false, err
	}
	for _, item := range list.Items() {
		switch item.Text() {
		case "no-new-privileges", "no-new-privileges:true", "no-new-privileges=true":
		default:
			return reject("holds %q; no-new-privileges is all that may be said", clip(item.Text()))
		}
	}
	return leaveOut() // every container has it
}

func restartPolicy(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	if v.Kind() == strictjson.Null {
		return leaveOut()
	}
	out, err := fields{"Name": oneOf("has to be no: nothing outlives the run", "", "no")}.read(nil, "RestartPolicy", v)
	if err != nil {
		return strictjson.Value{}, false, err
	}
	_ = out
	return leaveOut()
}

// networkingConfig is what clients send for a container without a network of its own.
func networkingConfig(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	if isHollow(v) && len(v.Get("EndpointsConfig").Members()) == 0 {
		return leaveOut()
	}
	ends := v.Get("EndpointsConfig")
	if v.Kind() != strictjson.Object || len(v.Members()) != 1 || ends.Kind() != strictjson.Object {
		return reject("is not allowed: a container has no network")
	}
	for _, m := range ends.Members() {
		if m.Name != "none" && m.Name != "default" || !isHollow(m.Value) {
			return reject("is not allowed: a container has no network")
		}
	}
	return leaveOut()
}

// sizes are the rows and columns of a terminal.
func sizes(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	if v.Kind() == strictjson.Null {
		return leaveOut()
	}
	if v.Kind() != strictjson.Array || len(v.Items()) != 2 {
		return reject("is not two numbers")
	}
	for _, item := range v.Items() {
		if n, ok := item.Int(); !ok || n < 0 || n > 1<<16 {
			return reject("is not two numbers")
		}
	}
	return v, true, nil
}

// tmpfs are file systems in memory, which count for the container's own limit.
func tmpfs(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	if isEmpty(v) {
		return leaveOut()
	}
	if v.Kind() != strictjson.Object || len(v.Members()) > 64 {
		return reject("is not an object of texts")
	}
	for _, m := range v.Members() {
		where := m.Name
		if !path.IsAbs(where) || path.Clean(where) != where || where == "/" || m.Value.Kind() != strictjson.String {
			return reject("holds %q, which is not the plain absolute path of a directory", clip(where))
		}
		for _, system := range []string{"/proc", "/sys", "/dev"} {
			if where == system || strings.HasPrefix(where, system+"/") {
				return reject("holds %q, which is the engine's", clip(where))
			}
		}
		if bad := badTmpfsOption(m.Value.Text()); bad != "" {
			return reject("has the option %q", clip(bad))
		}
	}
	return v, true, nil
}

// badTmpfsOption gives an option that is not allowed, or "".
func badTmpfsOption(text string) string {
	for _, option := range strings.Split(text, ",") {
		name, value, has := strings.Cut(option, "=")
		switch name {
		case "":
		case "rw", "ro", "exec", "noexec", "nosuid", "nodev", "noatime":
			if has {
				return option
			}
		case "size", "mode", "uid", "gid", "nr_inodes":
			if !has || strings.Trim(value, "0123456789kKmMgG") != "" || value == "" {
				return option
			}
		default:
			return option
		}
	}
	return ""
}

// ulimits may bound open files and core dumps.
func ulimits(_ *Set, v strictjson.Value) (strictjson.Value, bool, error) {
	if isEmpty(v) {
		return leaveOut()
	}
	if v.Kind() != strictjson.Array || len(v.Items()) > 16 {
		return reject("is not a list")
	}
	var out []strictjson.Value
	for _, item := range v.Items() {
		f := fields{"Name": oneOf("has to be nofile or core", "nofile", "core"), "Soft": number(0, 1<<20), "Hard": number(0, 1<<20)}
		one, err := f.read(nil, "Ulimits", item)
		if err != nil {
			return strictjson.Value{}, false, err
		}
		out = append(out, objectOf(one, []string{"Name", "Soft", "Hard"}))
	}
	return strictjson.ListOf(out...), true, nil
}
