package posture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mounts are the sandbox's own one by one, and of the host's trees the flags that
// there are and which can be written: which trees there are depends on the
// distribution.
func (c *comparison) mounts() {
	t := c.tallies["mount"]
	for line := range c.in["mount"] {
		if _, ok := c.out["mount"][line]; ok {
			t.same++
			continue
		}
		m, ok := parseMount(line)
		if !ok {
			c.grew("mount", "%s: not understood", line)
			continue
		}
		c.mount(m)
		t.less++
	}
	if c.weak {
		c.say("mount", "all: the caller's")
	}
}

type mount struct {
	target, kind, super string
	flags               []string
}

func parseMount(line string) (m mount, ok bool) {
	before, after, ok := strings.Cut(line, " - ")
	f, g := strings.Fields(before), strings.Fields(after)
	if !ok || len(f) < 6 || len(g) < 3 {
		return m, false
	}
	m = mount{target: f[4], kind: g[0], super: sizes(g[2])}
	m.flags = slices.DeleteFunc(strings.Split(f[5], ","), func(o string) bool { return strings.HasSuffix(o, "atime") })
	return m, true
}

// sizes leaves out of a file system's options what differs between kernels.
func sizes(options string) string {
	keep := slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		name, _, _ := strings.Cut(o, "=")
		return !slices.Contains([]string{"rw", "ro", "size", "nr_inodes", "mode", "ptmxmode"}, name)
	})
	return strings.Join(keep, ",")
}

func (c *comparison) mount(m mount) {
	flags, rw := strings.Join(m.flags, ","), slices.Contains(m.flags, "rw")
	own := []string{"/", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp", "/proc", c.home, c.runtime()}
	device := m.kind == "devtmpfs" || strings.HasPrefix(m.target, "/dev/") && !slices.Contains(own, m.target)
	if !slices.Contains(m.flags, "nosuid") {
		c.grew("mount", "%s: without nosuid", m.target)
	}
	if !slices.Contains(m.flags, "nodev") && !strings.HasPrefix(m.target, "/dev") {
		c.grew("mount", "%s: without nodev", m.target)
	}
	switch {
	case strings.HasPrefix(m.target, "/proc/"):
		c.say("mount", "below /proc: %s", flags)
		if rw {
			c.grew("mount", "%s: can be written", m.target)
		}
	case device:
		c.say("mount", "of a device: %s", flags)
	case slices.Contains(own, m.target) && slices.Contains([]string{"tmpfs", "proc", "devpts", "mqueue", "overlay"}, m.kind):
		c.say("mount", "%s: %s: %s (%s)", c.stable(m.target), flags, m.kind, m.super)
	case !rw:
		c.say("mount", "of the host, read-only: %s", flags)
	default:
		c.say("mount", "of the host: %s: %s", c.stable(m.target), flags)
		if !within(m.target, c.ws) && !within(m.target, c.home) {
			c.grew("mount", "%s: can be written", m.target)
		}
	}
}

func (c *comparison) runtime() string { return "/run/user/" + strconv.Itoa(c.uid) }

func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// stable puts words for what the account has of its own.
func (c *comparison) stable(path string) string {
	return strings.NewReplacer(c.ws, "WORKSPACE", c.home, "HOME", c.runtime(), "RUNTIME").Replace(path)
}

// fits tells whether a posture is the golden one. Limits may be lower on a machine
// whose own are: a line that is not there is the caller's.
func (c *comparison) fits(golden string) (differences []string) {
	want := strings.Split(strings.TrimSpace(golden), "\n")
	for _, line := range c.lines {
		if !slices.Contains(want, line) {
			differences = append(differences, "+ "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(c.lines, line) && !c.lower(line) {
			differences = append(differences, "- "+line)
		}
	}
	return differences
}

// lower tells a golden limit that the caller's own is not above.
func (c *comparison) lower(line string) bool {
	name, value, ok := strings.Cut(strings.TrimPrefix(line, "limit "), ": ")
	if !ok || !strings.HasPrefix(line, "limit ") {
		return false
	}
	in, there := c.in["limit"][name]
	return there && in == c.out["limit"][name] && (value == "less" || number(in) <= number(value))
}

func (t *tally) String() string {
	if t.grown > 0 {
		return fmt.Sprintf("**%d grown**", t.grown)
	}
	return fmt.Sprintf("%d less, %d same", t.less, t.same)
}
