package everyday

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// use is one thing that people do with a computer.
type use struct {
	name string
	// needs are the commands that must exist.
	needs []string
	// setup is run bare before the script, both times.
	setup string
	// script is run by bash -euo pipefail in an empty directory.
	script string
	// args are the script's arguments.
	args []string
	// stdin is what the script reads.
	stdin string
	// want matches the whole output, trimmed.
	want *regexp.Regexp
	// exit is the exit status.
	exit int
	// varies: the output may differ between bare and inside.
	varies bool
	// terminal is the size of the terminal; zero: pipes.
	terminal harness.Size
	// dialogue is what happens at the terminal.
	dialogue []harness.Action
	// wontWork says why the policy refuses this use; inside it must then fail.
	wontWork string
}

// readUses parses a file of uses. Each is "=== NAME", header lines "KEY: VALUE",
// a blank line, and the script; for a terminal "--- terminal ROWSxCOLS" and the
// dialogue follow.
func readUses(t *testing.T, file string) []use {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var uses []use
	names := map[string]bool{}
	for i, block := range strings.Split("\n"+string(data), "\n=== ")[1:] {
		u, err := parseUse(block)
		if err != nil {
			t.Fatalf("%s: use %d %q: %v", file, i+1, u.name, err)
		}
		if names[u.name] {
			t.Fatalf("%s: two uses are named %q", file, u.name)
		}
		names[u.name] = true
		uses = append(uses, u)
	}
	return uses
}

func parseUse(block string) (use, error) {
	head, script, ok := strings.Cut(block, "\n\n")
	if !ok {
		return use{}, fmt.Errorf("no blank line after the header")
	}
	name, head, _ := strings.Cut(head, "\n")
	u := use{name: name}
	for line := range strings.Lines(head) {
		line = strings.TrimSuffix(line, "\n")
		key, value, _ := strings.Cut(line, ":")
		if err := u.set(key, strings.TrimSpace(value)); err != nil {
			return u, fmt.Errorf("%q: %w", line, err)
		}
	}
	script, talk, _ := strings.Cut(script, "\n--- terminal ")
	u.script = script
	return u, u.setDialogue(talk)
}

func (u *use) set(key, value string) error {
	var err error
	switch key {
	case "needs":
		u.needs = strings.Fields(value)
	case "want":
		u.want, err = regexp.Compile(`(?s)\A(?:` + value + `)\z`)
	case "exit":
		u.exit, err = strconv.Atoi(value)
	case "stdin":
		u.stdin, err = strconv.Unquote(value)
	case "setup":
		u.setup = value
	case "args":
		u.args, err = quotedWords(value)
	case "varies":
		u.varies = true
	case "wontwork":
		u.wontWork = value
	default:
		err = fmt.Errorf("unknown key")
	}
	return err
}

func quotedWords(s string) ([]string, error) {
	var words []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return nil, err
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		words, s = append(words, word), s[len(quoted):]
	}
	return words, nil
}

// setDialogue parses the size of the terminal and the lines below it:
// expect REGEXP, send "GO STRING", resize ROWSxCOLS, hangup.
func (u *use) setDialogue(talk string) error {
	if talk == "" {
		return nil
	}
	size, lines, _ := strings.Cut(talk, "\n")
	var err error
	if u.terminal, err = parseSize(size); err != nil {
		return err
	}
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		action, err := parseAction(line)
		if err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		u.dialogue = append(u.dialogue, action)
	}
	return nil
}

func parseAction(line string) (a harness.Action, err error) {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "expect":
		a.Expect, err = regexp.Compile("(?m)" + rest)
	case "send":
		a.Send, err = strconv.Unquote(rest)
	case "resize":
		a.Resize, err = parseSize(rest)
	case "hangup":
		a.Hangup = true
	default:
		err = fmt.Errorf("unknown step")
	}
	return a, err
}

func parseSize(s string) (harness.Size, error) {
	var size harness.Size
	_, err := fmt.Sscanf(s, "%dx%d", &size.Rows, &size.Cols)
	return size, err
}
