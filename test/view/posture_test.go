package view

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

var update = flag.Bool("update", false, "write the golden files; review every line")

// TestPosture compares all that /proc shows of the confined process with the
// golden file of the profile. Values that depend on the machine are written as
// their relation to the caller's; a field that grew fails whatever is golden.
func TestPosture(t *testing.T) {
	for _, name := range []string{"strict", "hermes-strict", "ci", "custom"} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, name)
			got := s.posture(t)
			path := filepath.Join("testdata", "posture", name+s.suffix()+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s\n%s", got, want, difference(got, string(want)))
			}
		})
	}
}

// suffix tells the files apart: host user 0 has more to be kept from.
func (s scene) suffix() string {
	if s.Uid == 0 {
		return "-root"
	}
	return ""
}

func difference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var out []string
	for _, line := range g {
		if !slices.Contains(w, line) {
			out = append(out, "+ "+line)
		}
	}
	for _, line := range w {
		if !slices.Contains(g, line) {
			out = append(out, "- "+line)
		}
	}
	return strings.Join(out, "\n")
}

// signalled is how the commands are started: one signal blocked and one ignored.
var signalled = []string{"env", "--block-signal=USR1", "--ignore-signal=USR2"}

// both runs the same command outside and inside.
func (s scene) both(t *testing.T, argv ...string) (outside, inside string) {
	t.Helper()
	bare := wraptest.Run(t, s.Bare(s.dir, append(slices.Clone(signalled), argv...)...), limit)
	wrapped := append(slices.Clone(signalled), s.Bin, "--quiet", "--policy", s.policy, "--")
	in := wraptest.Run(t, s.Bare(s.dir, append(wrapped, argv...)...), limit)
	if bare.Exit != 0 || in.Exit != 0 {
		t.Fatalf("%v: got exit %d outside and %d inside, want 0\n%s%s", argv, bare.Exit, in.Exit, bare.Err, in.Err)
	}
	return bare.Out, in.Out
}

func (s scene) posture(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	out, in := s.both(t, "cat", "/proc/self/status")
	b.WriteString(statusLines(t, out, in))
	out, in = s.both(t, "cat", "/proc/self/limits")
	b.WriteString(limitLines(t, out, in))
	out, in = s.both(t, s.program, "posture")
	b.WriteString(selfLines(out, in))
	for _, file := range []string{"oom_score_adj", "timerslack_ns", "coredump_filter"} {
		out, in = s.both(t, "cat", "/proc/self/"+file)
		fmt.Fprintf(&b, "%s: %s\n", file, relation(out, in))
	}
	_, in = s.both(t, "cat", "/proc/self/cgroup")
	for line := range strings.Lines(in) {
		if !strings.HasSuffix(line, ":/\n") {
			t.Errorf("cgroup: got %q, want the sandbox's own root", line)
		}
	}
	_, in = s.both(t, "cat", "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups")
	fmt.Fprintf(&b, "ids: %s\n", s.stable(strings.Join(strings.Fields(in), " ")))
	_, in = s.both(t, "cat", "/proc/self/environ")
	b.WriteString(environLines(in))
	_, in = s.both(t, "cat", "/proc/self/mountinfo")
	b.WriteString(s.mountLines(t, in))
	return b.String()
}

// stable puts words for what the test's account has of its own.
func (s scene) stable(text string) string {
	return strings.NewReplacer(s.Home, "HOME", "/run/user/"+strconv.Itoa(s.Uid), "RUNTIME",
		fmt.Sprintf("%d 0 1", s.Uid), "ID 0 1", fmt.Sprintf("%d 0 1", s.Gid), "ID 0 1").Replace(text)
}

func relation(out, in string) string {
	if out == in {
		return "the caller's"
	}
	return strings.Join(strings.Fields(in), " ")
}

func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		k, v, _ := strings.Cut(line, ":")
		m[k] = strings.Join(strings.Fields(v), " ")
	}
	return m
}

// sameAsCaller are the fields that must not change at all.
var sameAsCaller = []string{
	"Umask", "Uid", "Gid", "SigBlk", "SigIgn", "ShdPnd", "SigPnd", "Cpus_allowed", "Mems_allowed_list",
	"Speculation_Store_Bypass", "SpeculationIndirectBranch", "THP_enabled", "CoreDumping",
}

// shown are printed as they are.
var shown = []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "TracerPid", "Threads", "SigCgt"}

func statusLines(t *testing.T, outside, inside string) string {
	t.Helper()
	out, in := fields(outside), fields(inside)
	var b strings.Builder
	for _, name := range sameAsCaller {
		if out[name] != in[name] {
			t.Errorf("%s: got %q, want the caller's %q", name, in[name], out[name])
		}
		fmt.Fprintf(&b, "%s: the caller's\n", name)
	}
	for _, name := range shown {
		fmt.Fprintf(&b, "%s: %s\n", name, in[name])
	}
	for _, g := range strings.Fields(in["Groups"]) {
		if !slices.Contains(strings.Fields(out["Groups"]), g) {
			t.Errorf("Groups: got %q, want none beyond the caller's %q", in["Groups"], out["Groups"])
		}
	}
	return b.String()
}

// limitLines: a limit may shrink and not grow.
func limitLines(t *testing.T, outside, inside string) string {
	t.Helper()
	out, in := limitTable(outside), limitTable(inside)
	var b strings.Builder
	for _, name := range sortedKeys(in) {
		for i, kind := range []string{"soft", "hard"} {
			was, is := out[name][i], in[name][i]
			if is > was {
				t.Errorf("%s, %s: got %d, want at most the caller's %d", name, kind, is, was)
			}
			word := "the caller's"
			switch {
			case name == "Max processes":
				word = "at most the caller's" // where no cgroup counts the tasks
			case is < was:
				word = strconv.FormatUint(is, 10)
			}
			fmt.Fprintf(&b, "limit %s, %s: %s\n", name, kind, word)
		}
	}
	return b.String()
}

func limitTable(text string) map[string][2]uint64 {
	m := map[string][2]uint64{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "Max ") || len(line) < 68 || strings.Contains(line, "Limit") {
			continue
		}
		m[strings.TrimSpace(line[:26])] = [2]uint64{amount(line[26:47]), amount(line[47:68])}
	}
	return m
}

func amount(s string) uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return 1<<64 - 1 // unlimited
	}
	return n
}

func selfLines(outside, inside string) string {
	var b strings.Builder
	for line := range strings.Lines(inside) {
		if strings.HasPrefix(line, "ns ") {
			word := "its own"
			if strings.Contains(outside, line) {
				word = "the caller's"
			}
			line = strings.Join(strings.Fields(line)[:2], " ") + ": " + word + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

func environLines(text string) string {
	var names []string
	for _, kv := range strings.Split(strings.TrimSuffix(text, "\x00"), "\x00") {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	return "environ: " + strings.Join(names, " ") + "\n"
}

// mountLines gives the flags of each mount of the sandbox's own, and of the
// host's trees the flags by what the policy opens: which trees there are
// depends on the distribution.
func (s scene) mountLines(t *testing.T, text string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			t.Fatalf("parse mountinfo: %q", line)
		}
		lines = append(lines, s.mountLine(f[4], flags(f[5]), g[0], sizes(g[2])))
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n") + "\n"
}

// flags leaves out the access times.
func flags(options string) string {
	keep := slices.DeleteFunc(strings.Split(options, ","), func(o string) bool { return strings.HasSuffix(o, "atime") })
	return strings.Join(keep, ",")
}

// sizes leaves out of a file system's options what differs between kernels.
func sizes(options string) string {
	keep := slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
		name, _, _ := strings.Cut(o, "=")
		return !slices.Contains([]string{"rw", "ro", "size", "nr_inodes", "mode", "ptmxmode"}, name)
	})
	return strings.Join(keep, ",")
}

func (s scene) mountLine(target, options, kind, super string) string {
	switch {
	case within(target, "/proc") && target != "/proc":
		if kind == "proc" {
			return "mount below /proc, read-only part: " + options
		}
		return "mount below /proc, cover: " + options
	case kind == "devtmpfs":
		return "mount of a device: " + options
	}
	if underAny(target, s.model.hidden) {
		return "mount over what is hidden: " + options
	}
	if visible, write, exec := s.model.rights(target); visible {
		if underAny(target, s.model.protected) {
			return fmt.Sprintf("mount over what is protected: exec %v: %s", exec, options)
		}
		return fmt.Sprintf("mount of the host: write %v, exec %v: %s", write, exec, options)
	}
	return s.stable(fmt.Sprintf("mount %s: %s: %s (%s)", target, options, kind, super))
}

func sortedKeys(m map[string][2]uint64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
