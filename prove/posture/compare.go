package posture

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Groups are the groups of fields, as the probe names them.
var groups = []string{"capget", "status", "prctl", "limit", "namespace", "descriptor", "env", "self", "mount", "proc", "sysctl", "sys"} //nolint:gochecknoglobals // a table

// seen is what the probe printed, by group and name.
type seen map[string]map[string]string

func parse(text string) seen {
	s := seen{}
	for _, g := range groups {
		s[g] = map[string]string{}
	}
	for line := range strings.Lines(text) {
		group, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || s[group] == nil {
			continue
		}
		if group == "mount" {
			s[group][rest] = ""
			continue
		}
		name, value, _ := strings.Cut(rest, ": ")
		s[group][strings.TrimSuffix(name, ":")] = strings.Join(strings.Fields(value), " ")
	}
	return s
}

// account is what differs between two homes and users, and is written as words.
type account struct {
	home, ws string
	uid, gid int
	weak     bool     // the tier without namespaces
	secrets  []string // variables of the caller that nothing may pass on
}

// tally counts the fields of a group.
type tally struct{ same, less, grown int }

// comparison is one profile's posture beside the caller's.
type comparison struct {
	account
	out, in seen
	lines   []string
	grown   []string
	tallies map[string]*tally
}

func compare(a account, outside, inside string) *comparison {
	c := &comparison{account: a, out: parse(outside), in: parse(inside), tallies: map[string]*tally{}}
	for _, g := range groups {
		c.tallies[g] = &tally{}
		switch g {
		case "mount":
			c.mounts()
		case "proc", "sysctl", "sys":
			c.files(g)
		default:
			for _, name := range slices.Sorted(maps.Keys(c.in[g])) {
				c.field(g, name)
			}
		}
	}
	slices.Sort(c.lines)
	c.lines = slices.Compact(c.lines)
	return c
}

func (c *comparison) say(group, format string, args ...any) {
	c.lines = append(c.lines, group+" "+fmt.Sprintf(format, args...))
}

func (c *comparison) grew(group, format string, args ...any) {
	c.tallies[group].grown++
	c.grown = append(c.grown, group+" "+fmt.Sprintf(format, args...))
}

// field compares one field: what is the caller's own is not printed, for it
// depends on the machine.
func (c *comparison) field(group, name string) {
	out, there := c.out[group][name]
	in := c.in[group][name]
	if why := c.more(group, name, out, in, there); why != "" {
		c.grew(group, "%s: %s inside, %s outside: %s", name, in, out, why)
	}
	t := c.tallies[group]
	if there && out == in && group != "env" && group != "namespace" {
		t.same++
		return
	}
	word := c.word(group, name, out, in)
	if word == "the caller's" || word == "shared" {
		t.same++
	} else {
		t.less++
	}
	c.say(group, "%s: %s", name, word)
}

// word is how a field that is not the caller's is written.
func (c *comparison) word(group, name, out, in string) string {
	switch {
	case group == "env" && out == in:
		return "the caller's"
	case group == "env":
		return "set"
	case group == "namespace" && out == in:
		return "shared"
	case group == "namespace":
		return "its own"
	case group == "limit" && strings.HasPrefix(name, "nproc"):
		return "less" // where no control group counts the tasks
	case name == "cgroup":
		if strings.Count(in, ":/ ")+1 == len(strings.Fields(in)) {
			return "its own root"
		}
	case name == "uid_map" || name == "gid_map":
		return strings.NewReplacer(strconv.Itoa(c.uid)+" 0", "ID 0", strconv.Itoa(c.gid)+" 0", "ID 0").Replace(in)
	case name == "Groups":
		return "fewer"
	case strings.HasPrefix(name, "Speculation") || strings.HasPrefix(name, "speculation"):
		return "stricter"
	}
	return in
}

// more says in what way a field grew; "" when it did not.
func (c *comparison) more(group, name, out, in string, there bool) string {
	switch {
	case group == "capget" || strings.HasPrefix(name, "Cap"):
		if bits(in)&^bits(out) != 0 {
			return "capabilities were added"
		}
	case name == "NoNewPrivs" || name == "no_new_privs" || strings.HasPrefix(name, "Seccomp") || name == "seccomp":
		if number(in) < number(out) {
			return "a lock was opened"
		}
	case name == "dumpable":
		if number(in) > number(out) {
			return "others may look in"
		}
	case name == "securebits":
		if number(out)&^number(in) != 0 {
			return "bits were cleared"
		}
	case group == "limit":
		if number(in) > number(out) {
			return "the limit was raised"
		}
	case group == "namespace":
		if out == in && name != "time" && !c.weak {
			return "it is shared with the host"
		}
	case group == "descriptor":
		if !there || !slices.Contains([]string{"0", "1", "2"}, name) {
			return "a descriptor was passed"
		}
	case group == "env":
		if slices.Contains(c.secrets, name) && out == in {
			return "a secret of the caller's was passed"
		}
	case name == "Groups":
		for _, g := range strings.Fields(in) {
			if !slices.Contains(strings.Fields(out), g) {
				return "a group was added"
			}
		}
	case name == "TracerPid" || name == "Threads" || name == "oom_score_adj" || name == "nice":
		if (name == "oom_score_adj" || name == "nice") && number(in) < number(out) || name == "TracerPid" && in != "0" || name == "Threads" && in != "1" {
			return "it is not as it must be"
		}
	case slices.Contains([]string{"Uid", "Gid", "SigBlk", "SigIgn", "Umask"}, name):
		if in != out {
			return "it must be the caller's"
		}
	}
	return ""
}

func bits(s string) uint64 {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// number reads a value; an error instead of one is nothing.
func number(s string) uint64 {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return uint64(n) + 1<<62 // so that negative ones compare
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n/2 + 1<<62
}

// rights are in the order in which they grow.
var rights = []string{"", "-", "read", "written"} //nolint:gochecknoglobals // a table

// files compares what is seen of a file system of the kernel's, and what of it can
// be written.
func (c *comparison) files(group string) {
	var written []string
	t := c.tallies[group]
	for path, in := range c.in[group] {
		out := c.out[group][path]
		a, b := slices.Index(rights, out), slices.Index(rights, in)
		switch {
		case b > a:
			c.grew(group, "%s: %q inside, %q outside", path, in, out)
		case b < a:
			t.less++
		default:
			t.same++
		}
		if in == "written" {
			written = append(written, path)
		}
	}
	for path := range c.out[group] {
		if _, ok := c.in[group][path]; !ok {
			t.less++
		}
	}
	slices.Sort(written)
	switch {
	case len(c.in[group]) == 0:
		c.say(group, "seen: none")
	case group == "proc" && len(written) > 0 && !slices.ContainsFunc(written, func(path string) bool { return !strings.HasPrefix(path, "/proc/self/") }):
		c.say(group, "written: of its own process, what the caller can of its own")
	default:
		c.say(group, "written: %s", strings.Join(append(written, map[bool]string{true: "none"}[len(written) == 0]), " "))
	}
}
