// Package hermes looks at a Hermes installation: what is configured, what of it
// endangers its owner, and what policy it could start with. It reads files and
// changes nothing. Nothing that it says holds a secret.
package hermes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// maxFile bounds each file that is read (bytes); Hermes' own are a few KiB.
const maxFile = 1 << 20

// Variable is one line NAME=VALUE of HERMES_HOME/.env, or one of the environment.
type Variable struct {
	Name, Value string
	// File and Line say where it is set; Line is 0 for the environment.
	File string
	Line int
}

// Place is where the variable is set: "/home/u/.hermes/.env:12".
func (v Variable) Place() string {
	if v.Line == 0 {
		return v.File
	}
	return v.File + ":" + strconv.Itoa(v.Line)
}

// Installation is what is there. The zero value is an installation without any
// file.
type Installation struct {
	// Home is HERMES_HOME.
	Home string
	// Command is the absolute path of the program, "" when it is not on PATH.
	Command string
	// Variables holds what .env sets, in its order; a name that is set twice
	// counts where it stands last.
	Variables []Variable
	// Broken are lines of .env that set nothing and are no comment.
	Broken []Variable
	// Config is config.yaml as it is written; nil when there is none.
	Config map[string]any
	// Unreadable says which files are there and cannot be read or understood.
	Unreadable []error

	environ map[string]string
}

// Look reads the installation whose state is in home. environ is the caller's
// environment, as os.Environ gives it; command is where the program lies, or "".
func Look(home, command string, environ []string) Installation {
	in := Installation{Home: home, Command: command, environ: map[string]string{}}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			in.environ[name] = value
		}
	}
	in.readEnv(filepath.Join(home, ".env"))
	in.readConfig(filepath.Join(home, "config.yaml"))
	return in
}

// read reads a file of limited size; one that is missing is empty.
func (in *Installation) read(path string) []byte {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && !info.Mode().IsRegular():
		err = errors.New("it is not a regular file")
	case err == nil && info.Size() > maxFile:
		err = fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		in.Unreadable = append(in.Unreadable, fmt.Errorf("read %s: %w", path, err))
	}
	return data
}

// readEnv reads KEY=VALUE lines as dotenv files have them. It forgives more than
// Hermes does: what looks wrong is a finding and not an error.
func (in *Installation) readEnv(path string) {
	for i, line := range strings.Split(string(in.read(path)), "\n") {
		text := strings.TrimSpace(strings.TrimPrefix(strings.TrimSuffix(line, "\r"), "\ufeff"))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		text = strings.TrimPrefix(text, "export ")
		name, value, ok := strings.Cut(text, "=")
		v := Variable{Name: strings.TrimSpace(name), Value: unquote(strings.TrimSpace(value)), File: path, Line: i + 1}
		if !ok || !isName(v.Name) {
			v.Value = text
			in.Broken = append(in.Broken, v)
			continue
		}
		in.Variables = append(in.Variables, v)
	}
}

func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	if i := strings.Index(s, " #"); i >= 0 {
		s = strings.TrimSpace(s[:i])
	}
	return s
}

func isName(s string) bool {
	for i, c := range s {
		letter := c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

func (in *Installation) readConfig(path string) {
	data := in.read(path)
	if len(data) == 0 {
		return
	}
	if err := yaml.Unmarshal(data, &in.Config); err != nil {
		in.Unreadable = append(in.Unreadable, fmt.Errorf("read %s: %w", path, err))
	}
}

// Value gives what Hermes would see: .env first, then the environment.
func (in Installation) Value(name string) (Variable, bool) {
	for i := len(in.Variables) - 1; i >= 0; i-- {
		if in.Variables[i].Name == name {
			return in.Variables[i], in.Variables[i].Value != ""
		}
	}
	value := in.environ[name]
	return Variable{Name: name, Value: value, File: "the environment"}, value != ""
}

// Setting gives a value of config.yaml by its path ("terminal.backend"), in the
// words of YAML; "" when it is not there or no plain value.
func (in Installation) Setting(path string) string {
	var at any = in.Config
	for part := range strings.SplitSeq(path, ".") {
		m, ok := at.(map[string]any)
		if !ok {
			return ""
		}
		at = m[part]
	}
	switch v := at.(type) {
	case nil, map[string]any:
		return ""
	case []any:
		words := make([]string, len(v))
		for i := range v {
			words[i] = fmt.Sprint(v[i])
		}
		return strings.Join(words, ",")
	default:
		return fmt.Sprint(v)
	}
}

// first gives the first setting or variable that is set, and where.
func (in Installation) first(names ...string) (value, place string) {
	for _, name := range names {
		if strings.Contains(name, ".") {
			if s := in.Setting(name); s != "" {
				return s, filepath.Join(in.Home, "config.yaml") + ": " + name
			}
		} else if v, ok := in.Value(name); ok {
			return v.Value, v.Place() + ": " + name
		}
	}
	return "", ""
}

func isTrue(s string) bool {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "1", "true", "yes", "on":
		return true
	}
	return false
}
