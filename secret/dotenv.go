package secret

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// maxDotenv bounds a file of variables.
const maxDotenv = 1 << 20

// fromDotenv reads one variable of a file of NAME=VALUE lines, as agents keep
// their keys. The file is held to what a file with a secret is held to.
func (r Reader) fromDotenv(path, name string) (string, error) {
	// One that is not there yet is none: what comes later is judged then.
	if _, err := os.Lstat(path); err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	if r.changeable(path) {
		return "", fmt.Errorf("read file %q: it can be changed from inside: export %s instead", path, name)
	}
	text, err := readFile(path, maxDotenv, checkFile)
	if err != nil {
		return "", err
	}
	if len(text) > maxDotenv {
		return "", fmt.Errorf("read file %q: it is longer than %d characters", path, maxDotenv)
	}
	value, err := dotenv(text, name)
	if err != nil {
		return "", fmt.Errorf("read file %q: %w", path, err)
	}
	return value, nil
}

// missing is the error for a variable that a file does not set.
type missing struct{ name string }

func (m missing) Error() string { return fmt.Sprintf("it does not set %s", m.name) }

// Is makes it one of fs.ErrNotExist.
func (m missing) Is(target error) bool { return target == fs.ErrNotExist }

// dotenv gives the value of a variable: of the last line that sets it, as
// readers of such files do. Other lines are not judged, whatever they hold. A
// value in which readers disagree is refused: nothing is expanded or run.
func dotenv(text, name string) (string, error) {
	value, line, found := "", 0, false
	lines := bufio.NewScanner(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
	lines.Buffer(nil, maxDotenv+1)
	for n := 1; lines.Scan(); n++ {
		key, v, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		key = strings.TrimSpace(key)
		if rest, exported := strings.CutPrefix(key, "export "); exported {
			key = strings.TrimSpace(rest)
		}
		if ok && key == name {
			value, line, found = strings.TrimSpace(v), n, true
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	if !found {
		return "", missing{name}
	}
	value, what := unquote(value)
	switch {
	case what != "":
		return "", fmt.Errorf("line %d: the value of %s %s", line, name, what)
	case value == "":
		return "", missing{name}
	}
	return value, nil
}

// unquote takes off quotes and what follows as a comment.
func unquote(v string) (value, what string) {
	if v == "" {
		return "", ""
	}
	if q := v[0]; q == '\'' || q == '"' {
		inner, rest, closed := strings.Cut(v[1:], string(q))
		rest = strings.TrimSpace(rest)
		switch {
		case !closed:
			return "", "has a quote that does not close on its line"
		case rest != "" && rest[0] != '#':
			return "", "goes on after its closing quote"
		case q == '"' && strings.ContainsAny(inner, "\\$`"):
			return "", "holds $, ` or a backslash in double quotes, which some readers expand: write it in single quotes"
		}
		return inner, ""
	}
	if i := strings.Index(v, " #"); i >= 0 {
		v = strings.TrimSpace(v[:i])
	}
	switch {
	case strings.HasPrefix(v, "#"):
		return "", ""
	case strings.ContainsAny(v, " \t"):
		return "", "holds a space: write it in single quotes"
	case strings.ContainsAny(v, "'\"\\$`"):
		return "", "holds a quote, $, ` or a backslash, which some readers expand: write it in single quotes"
	}
	return v, ""
}
