package kernels

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// verdict is what one answer comes to.
type verdict struct {
	// Short is for the table: "held", "refused", and so on.
	Short string
	// Said is what is compared with the golden file.
	Said string
	// Wrong lists what must not be, whatever the golden file says.
	Wrong []string
	// Missing lists what was not exercised.
	Missing []report.Missing
	// Row is for a table of its own, instead of Short.
	Row []string
}

func (v *verdict) wrong(format string, args ...any) {
	v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...))
}

func judgeRoot(a protocol.Answer) (v verdict) {
	if a.Exit != 0 {
		v.wrong("exit %d: %s%s", a.Exit, a.Stdout, a.Stderr)
	}
	return v
}

// must is what the probe has to reach without a sandbox; what a kernel or a
// setting refuses to everybody is not among it.
var must = []string{
	"read a key", "read a file", "make a file", "signal a process", "read an environment", "connect to loopback",
	"connect to an abstract socket", "connect to a local socket", "connect to a denied address", "connect to a denied port",
}

func judgeTwin(a protocol.Answer) (v verdict) {
	v.Short = "reached"
	for _, m := range must {
		if !hasLine(a.Stdout, "ESCAPED "+m) {
			v.wrong("without a sandbox the probe does not %s: %s%s", m, a.Stdout, a.Stderr)
		}
	}
	return v
}

// judgeLaunch tells the two good ends of a launch from all others: the command
// ran to its end and reached nothing, or it was refused before it ran.
func judgeLaunch(a protocol.Answer) (v verdict) {
	v.Said = fmt.Sprintf("exit %d\n%s", a.Exit, a.Stderr)
	for line := range strings.Lines(a.Stdout) {
		if strings.HasPrefix(line, "ESCAPED ") {
			v.wrong("%s", strings.TrimSpace(line))
		}
	}
	switch {
	case a.Late:
		v.Short = "late"
		v.wrong("not done in time: %s%s", a.Stdout, a.Stderr)
	case a.Exit == 0 && hasLine(a.Stdout, "DONE"):
		v.Short = "held"
	case a.Exit == exitRefused && strings.TrimSpace(a.Stdout) == "":
		v.Short = "refused"
		v.Wrong = append(v.Wrong, oneRemedy(a.Stderr)...)
	default:
		v.Short = "broken"
		v.wrong("exit %d: %s%s", a.Exit, a.Stdout, a.Stderr)
	}
	if strings.Contains(a.Stderr, "BUG") {
		v.wrong("a refusal that calls itself a bug: %s", a.Stderr)
	}
	return v
}

const exitRefused = 125

// oneRemedy holds a refusal to its form: one error, and one thing to do.
func oneRemedy(stderr string) (wrong []string) {
	errors, hints := 0, 0
	for line := range strings.Lines(stderr) {
		switch {
		case strings.HasPrefix(line, "hermes-wrap: error: "):
			errors++
		case strings.HasPrefix(line, "hermes-wrap: hint: "):
			hints++
		}
	}
	if errors != 1 || hints != 1 {
		wrong = append(wrong, fmt.Sprintf("%d errors and %d hints in a refusal: %s", errors, hints, stderr))
	}
	return wrong
}

// judgeLabel is about which profile was attached; the run itself is ended.
func judgeLabel(a protocol.Answer) (v verdict) {
	v.Short, v.Said = "attached", a.Stdout
	if !hasLine(a.Stdout, "hermes-wrap (unconfined)") {
		v.wrong("the packaged profile was not attached: %s%s", a.Stdout, a.Stderr)
	}
	return v
}

func judgeFetch(a protocol.Answer) (v verdict) {
	v = judgeOutcome(a)
	if a.Exit == 0 && !strings.Contains(a.Stdout, "reached the allowed host") {
		v.wrong("what is allowed was not reached: %s%s", a.Stdout, a.Stderr)
	}
	return v
}

// judgeOutcome is for commands that either work or are refused.
func judgeOutcome(a protocol.Answer) (v verdict) {
	v.Said = fmt.Sprintf("exit %d\n%s", a.Exit, a.Stderr)
	switch {
	case a.Exit == 0:
		v.Short = "works"
	case a.Exit == exitRefused:
		v.Short = "refused"
	default:
		v.Short = "broken"
		v.wrong("exit %d: %s%s", a.Exit, a.Stdout, a.Stderr)
	}
	return v
}

// diagnosis is what doctor prints for programs.
type diagnosis struct {
	OK       bool `json:"ok"`
	Findings []struct {
		Feature, Found, Remedy string
		OK, Untried, Info      bool
	} `json:"findings"`
}

// jsonFollows parts the two forms of what doctor says.
const jsonFollows = "--json:"

// judgeDoctor sees that both forms and the exit code say the same.
func judgeDoctor(a protocol.Answer) (v verdict) {
	text, object, both := strings.Cut(a.Stdout, jsonFollows+"\n")
	if !both || (a.Exit != 0 && a.Exit != 1) {
		v.wrong("exit %d: %s%s", a.Exit, a.Stdout, a.Stderr)
		return v
	}
	var d diagnosis
	if err := json.Unmarshal([]byte(object), &d); err != nil {
		v.wrong("doctor --json: %v: %s", err, object)
		return v
	}
	v.Said = fmt.Sprintf("exit %d\n%s%s", a.Exit, text, a.Stderr)
	v.Short = "all there"
	if !d.OK {
		v.Short = "missing: " + strings.Join(d.missing(), ", ")
	}
	if d.OK != (a.Exit == 0) {
		v.wrong("doctor ends with %d and says ok: %v", a.Exit, d.OK)
	}
	for _, f := range d.Findings {
		if !strings.Contains(text, f.Found) {
			v.wrong("the table does not have %q", f.Found)
		}
		if !f.OK && !f.Info && !f.Untried && f.Remedy == "" {
			v.wrong("%s is missing without a remedy", f.Feature)
		}
	}
	return v
}

func (d diagnosis) missing() (names []string) {
	for _, f := range d.Findings {
		if !f.OK && !f.Info && !f.Untried {
			names = append(names, f.Feature)
		}
	}
	return names
}

func hasLine(text, line string) bool {
	for l := range strings.Lines(text) {
		if strings.TrimRight(l, "\n") == line {
			return true
		}
	}
	return false
}
