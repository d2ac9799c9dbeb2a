package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// Exit codes of the launcher itself; every other code is the command's own.
const (
	exitOK            = 0
	exitTime          = 124 // limits.time was reached, as with timeout(1)
	exitFailed        = 125 // hermes-wrap failed
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignalled     = 128 // and the signal's number
)

// voice prints for people, on stderr only.
type voice struct {
	w     io.Writer
	color bool
}

func newVoice(w *os.File) voice {
	_, err := unix.IoctlGetTermios(int(w.Fd()), unix.TCGETS)
	return voice{w: w, color: err == nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// line prints one line; whatever came from outside is escaped, so that no
// name can act on the terminal.
func (v voice) line(label, code, text string) {
	for part := range strings.SplitSeq(text, "\n") {
		part = audit.Escape(part)
		if v.color && code != "" {
			fmt.Fprintf(v.w, "hermes-wrap: \x1b[%sm%s:\x1b[0m %s\n", code, label, part)
			continue
		}
		fmt.Fprintf(v.w, "hermes-wrap: %s: %s\n", label, part)
	}
}

// interject is the same voice while the command may have the terminal raw.
func (v voice) interject() voice {
	v.w = lineEnds{v.w}
	return v
}

// lineEnds writes CR LF.
type lineEnds struct{ w io.Writer }

func (l lineEnds) Write(b []byte) (int, error) {
	_, err := l.w.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")))
	return len(b), err
}

func (v voice) note(text string) { v.line("note", "36", text) }
func (v voice) warn(text string) { v.line("warning", "33", text) }
func (v voice) hint(text string) { v.line("hint", "32", text) }

// fail prints an error with its hints and gives the exit code.
func (v voice) fail(err error) int {
	var problems policy.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			v.line("error", "31", p.Error())
			if p.Hint != "" {
				v.hint(p.Hint)
			}
		}
		return exitFailed
	}
	v.line("error", "31", err.Error())
	if h := hintOf(err); h != "" {
		v.hint(h)
	}
	return codeOf(err)
}

// codeOf is the exit code for a run that failed.
func codeOf(err error) int {
	var answered *answeredError
	switch {
	case errors.As(err, &answered) && answered.code != 0:
		return answered.code
	case errors.Is(err, sandbox.ErrNotFound):
		return exitNotFound
	case errors.Is(err, sandbox.ErrNotExecutable):
		return exitNotExecutable
	}
	return exitFailed
}

// hintedError is an error with one thing to do about it.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

func hintOf(err error) string {
	var hinted *hintedError
	if errors.As(err, &hinted) {
		return hinted.hint
	}
	var answered *answeredError
	if errors.As(err, &answered) {
		return answered.hint
	}
	var lack *sandbox.LackError
	if errors.As(err, &lack) && lack.Hint != "" {
		return lack.Hint
	}
	var step *sandbox.StepError
	if errors.As(err, &step) {
		return step.Hint
	}
	var p policy.Problem
	if errors.As(err, &p) {
		return p.Hint
	}
	return ""
}
