package faults

import (
	"regexp"
	"slices"
	"strings"
)

// The exit codes of the launcher itself.
const (
	exitFailed        = 125
	exitNotExecutable = 126
	exitNotFound      = 127
	exitKilled        = 128 + 9
	exitRuntime       = 2       // the Go runtime itself could not go on
	exitAborted       = 128 + 6 // nor could the C library
	exitSegmented     = 128 + 11
)

// needsOfGo are the calls without which no Go program goes on: its threads, its
// memory, its poller. The launcher can say nothing any more (docs/launch.md).
var needsOfGo = []string{"clone3", "clone", "mmap", "mprotect", "brk", "epoll_create1", "eventfd2", "epoll_ctl"} //nolint:gochecknoglobals // a table

var (
	stepMessage = regexp.MustCompile(`(?m)^hermes-wrap: error: (?:.+ cannot be enforced: .*: )?(compile|preflight|runtime|proxy|container|network|root|limits|terminal|confine|self-test|exec): .+$`)
	lackMessage = regexp.MustCompile(`(?m)^hermes-wrap: error: (.+ cannot be enforced: needed .+)$`)
	overMessage = regexp.MustCompile(`(?m)^hermes-wrap: error: (the run was ended: .+)$`)
	hintMessage = regexp.MustCompile(`(?m)^hermes-wrap: hint: .+$`)
	goTrace     = regexp.MustCompile(`(?m)^(goroutine \d+|panic: |fatal error: |runtime: |SIG[A-Z]+: )`)
)

// verdict is what came of one injection.
type verdict struct {
	full    bool   // the command ran, held by everything
	step    string // where it was refused or ended
	message string
	wrong   string // what must not be; "" when nothing
}

// judge says what a run came to, apart from what it left.
func judge(e ended, full string) verdict {
	v := verdict{}
	if m := stepMessage.FindStringSubmatch(e.err); m != nil {
		v.step, v.message = m[1], strings.TrimPrefix(m[0], "hermes-wrap: error: ")
	}
	if m := lackMessage.FindStringSubmatch(e.err); m != nil && v.step == "" {
		v.step, v.message = "compile", m[1] // what the machine lacks is named, with what it takes
	}
	if m := policyMessage.FindStringSubmatch(e.err); m != nil && v.step == "" {
		v.step, v.message = "compile", m[1] // the place in the policy stands for the step
	}
	if m := overMessage.FindStringSubmatch(e.err); m != nil && v.step == "" {
		v.step, v.message = "exec", m[1]
	}
	switch {
	case strings.Contains(e.out, "ESCAPED"):
		v.wrong = "escaped: " + lineWith(e.out, "ESCAPED")
	case e.hung:
		v.wrong = "it hung: " + strings.Join(e.stuck, ", ")
	case len(e.left) > 0:
		v.wrong = "left behind: " + strings.Join(e.left, ", ")
	case endedByGo(e):
		v.step = "Go" // it ended the launcher in its own words
	case goTrace.MatchString(e.err):
		v.wrong = "a Go trace: " + goTrace.FindString(e.err)
	case e.exit == probeExit:
		v.full = true
		if got, want := withoutNet(e.out), withoutNet(full); got != want {
			v.wrong = "the command ran with something else around it: " + difference(got, want)
		}
	case e.exit == exitFailed || e.exit == exitNotExecutable || e.exit == exitNotFound:
		v.wrong = unsaid(e, v)
	case e.fault.kind == "crashed" && e.exit == exitSegmented && e.fault.role == "forked":
		v.step = "killed" // it was about to be the command
	case e.fault.kind == "killed" && e.exit == exitKilled && (e.fault.role == "launcher" || e.fault.role == "forked"):
		v.step = "killed" // nobody was left who could say anything, or it was the command
	default:
		v.wrong = "exit status " + itoa(e.exit)
	}
	return v
}

// withoutNet leaves out how the command's own requests went: a fault may refuse
// one, and what must not be let in is an escape by itself.
func withoutNet(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "net ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// endedByGo tells a launcher that the Go runtime, or the loader before it, ended in
// its own words, for want of something that no program goes on without.
func endedByGo(e ended) bool {
	if e.fault.role != "launcher" {
		return false
	}
	needed := slices.Contains(needsOfGo, e.fault.call) || strings.Contains(e.fault.detail, "eventfd") ||
		// It looks at the three standard streams before anything of ours runs.
		e.fault.call == "fcntl" && e.fault.after == "" && strings.Contains(e.err, "while checking standard file descriptor")
	switch e.exit {
	case exitRuntime, exitAborted:
		return needed || e.fault.kind == "crashed"
	case exitNotFound:
		return needed && e.fault.after == "" && strings.Contains(e.err, "error while loading")
	case exitSegmented:
		return e.fault.kind == "crashed"
	}
	return false
}

// unsaid tells what the words of a refusal lack.
func unsaid(e ended, v verdict) string {
	switch {
	case v.message == "":
		return "no message with a step: " + last(strings.Split(strings.TrimSpace(e.err), "\n"))
	case !hintMessage.MatchString(e.err):
		return "no remedy: " + v.message
	}
	return ""
}

func lineWith(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// difference gives the first lines that one has and the other has not.
func difference(got, want string) string {
	has := map[string]bool{}
	for line := range strings.Lines(want) {
		has[line] = true
	}
	for line := range strings.Lines(got) {
		if !has[line] {
			return "+ " + strings.TrimSpace(line)
		}
	}
	has = map[string]bool{}
	for line := range strings.Lines(got) {
		has[line] = true
	}
	for line := range strings.Lines(want) {
		if !has[line] {
			return "- " + strings.TrimSpace(line)
		}
	}
	return "the order of lines"
}
