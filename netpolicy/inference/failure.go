package inference

import (
	"strconv"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// failureStarts are the beginnings of results that say that a tool failed, in
// lower case. They are what shells, interpreters and agents write there.
var failureStarts = []string{
	"error:", "[error", "<error", "exception:", "fatal:", "traceback (most recent call last)", "<tool_use_error>",
	"command failed", "failed:", "tool error", "failure:", "panic:",
}

// exitTexts begin the line that has the status of a command, in results that are
// text.
var exitTexts = []string{
	"exit code ", "exit code: ", "exit status ", "exit status: ", "exit_code: ", "exit_code=", "exited with code ",
	"process exited with code ", "command exited with code ", "command failed with exit code ",
}

// exitNames are the members that hold it in results that are JSON.
var exitNames = []string{"exit_code", "exitCode", "exitcode", "returncode", "return_code", "exit_status", "exitStatus"}

// failureWindow is how much of a text is looked at.
const failureWindow = 4 << 10

// isFailure tells whether a result is one of the known shapes of failure. One in
// another shape counts as success.
func isFailure(text string) bool {
	if strings.HasPrefix(text, "{") {
		if v, ok := nested(text); ok {
			return isFailureObject(v, 0)
		}
	}
	head := strings.ToLower(text[:min(len(text), failureWindow)])
	for _, start := range failureStarts {
		if strings.HasPrefix(head, start) {
			return true
		}
	}
	if strings.Contains(head, "\ntraceback (most recent call last)") {
		return true
	}
	for line := range strings.Lines(head) {
		for _, before := range exitTexts {
			if code, ok := strings.CutPrefix(strings.TrimLeft(line, " \t[(<"), before); ok && leadingNumber(code) != 0 {
				return true
			}
		}
	}
	return false
}

func leadingNumber(s string) int {
	end := strings.IndexFunc(s, func(c rune) bool { return (c < '0' || c > '9') && c != '-' })
	if end < 0 {
		end = len(s)
	}
	n, err := strconv.Atoi(s[:end])
	if err != nil {
		return 0
	}
	return n
}

func isFailureObject(v strictjson.Value, depth int) bool {
	for _, name := range exitNames {
		if code := v.Get(name); code.Kind() == strictjson.Number && code.Text() != "0" {
			return true
		}
	}
	for _, name := range []string{"is_error", "isError"} {
		if v.Get(name).Text() == "true" {
			return true
		}
	}
	for _, name := range []string{"success", "ok"} {
		if m := v.Get(name); m.Kind() == strictjson.Bool && m.Text() == "false" {
			return true
		}
	}
	switch v.Get("status").Text() {
	case "error", "failed", "failure":
		return true
	}
	switch e := v.Get("error"); e.Kind() {
	case strictjson.String:
		if e.Text() != "" {
			return true
		}
	case strictjson.Object:
		return true
	case strictjson.Bool:
		if e.Text() == "true" {
			return true
		}
	}
	for _, name := range []string{"metadata", "outcome", "result", "output"} {
		if inner := v.Get(name); depth < 2 && inner.Kind() == strictjson.Object && isFailureObject(inner, depth+1) {
			return true
		}
	}
	return false
}
