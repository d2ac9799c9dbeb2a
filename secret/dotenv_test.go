package secret

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func TestDotenv(t *testing.T) {
	for _, c := range []struct{ name, text, want, err string }{
		{"plain", "KEY=" + value + "\n", value, ""},
		{"no line end", "KEY=" + value, value, ""},
		{"CRLF", "OTHER=x\r\nKEY=" + value + "\r\n", value, ""},
		{"export", "export KEY=" + value, value, ""},
		{"spaces", "  KEY = " + value + "  ", value, ""},
		{"single quotes", "KEY='a $b `c` #d'", "a $b `c` #d", ""},
		{"double quotes", `KEY="` + value + `"`, value, ""},
		{"comment behind", "KEY=" + value + " # mine", value, ""},
		{"comment behind quotes", "KEY='" + value + "' # mine", value, ""},
		{"hash within", "KEY=ab#cdefgh", "ab#cdefgh", ""},
		{"equals within", "KEY=ab=cdefgh==", "ab=cdefgh==", ""},
		{"the last counts", "KEY=first-value\nKEY=" + value, value, ""},
		{"byte order mark", "\ufeffKEY=" + value, value, ""},
		{"lines that are none", "# x\n\n$(reboot)\nif true\nKEY=" + value, value, ""},
		{"other names", "MYKEY=x\nKEY2=y\n#KEY=z\nkey=w", "", "does not set KEY"},
		{"empty", "KEY=", "", "does not set KEY"},
		{"empty in quotes", `KEY=""`, "", "does not set KEY"},
		{"a comment alone", "KEY= # none", "", "does not set KEY"},
		{"variable", "KEY=$OTHER", "", "some readers expand"},
		{"variable in quotes", `KEY="${OTHER}"`, "", "some readers expand"},
		{"command", "KEY=`id`", "", "some readers expand"},
		{"command in quotes", `KEY="$(id)"`, "", "some readers expand"},
		{"escape", `KEY=a\nb`, "", "some readers expand"},
		{"quote in the middle", `KEY=ab"cd"`, "", "some readers expand"},
		{"space", "KEY=ab cd", "", "holds a space"},
		{"open quote", "KEY='abc\ndef'", "", "does not close"},
		{"more behind the quote", "KEY='abc'def", "", "goes on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := dotenv(c.text, "KEY")
			switch {
			case c.err == "" && (err != nil || got != c.want):
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("got %q, %v, want an error with %q", got, err, c.err)
			case err != nil && strings.Contains(err.Error(), "OTHER"):
				t.Errorf("got %v, which shows the value", err)
			}
		})
	}
}

// FuzzDotenv: a value that is accepted is a piece of the last line that sets the
// variable, means the same in any quotes, and no error shows what a file holds.
func FuzzDotenv(f *testing.F) {
	f.Add("KEY='a'\n", "KEY")
	f.Add("\ufeffexport KEY = \"a b\" # c\r\nOTHER=x\nKEY=\n", "KEY")
	f.Add("KEY=$(id)\nKEY=`id`\nKEY=\"a\\n\"\n", "KEY")
	f.Add("KEY=a#b\nKEY=a #b\nKEY='a'b\n", "KEY")
	f.Fuzz(func(t *testing.T, text, name string) {
		v, err := dotenv(text, name)
		if err != nil {
			return
		}
		if v == "" || strings.ContainsAny(v, "\n\x00") && !strings.Contains(text, "\x00") || !strings.Contains(text, v) {
			t.Errorf("got %q, want a piece of one line of the text", v)
		}
		last := ""
		for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
			if key, _, ok := strings.Cut(line, "="); ok && strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(key), "export ")) == name {
				last = line
			}
		}
		if !strings.Contains(last, v) {
			t.Errorf("got %q, want a piece of the last line that sets it: %q", v, last)
		}
		// What was taken from a file is what the file says once it is written plainly.
		if again, err := dotenv(name+"='"+v+"'\n", name); !strings.ContainsAny(v, "'\\\r") && (err != nil || again != v) {
			t.Errorf("got %q from quotes around %q (%v)", again, v, err)
		}
	})
}

// The environment counts before the file, and the file is held to what any file
// with a secret is held to.
func TestDotenvSource(t *testing.T) {
	source := func(path string) policy.CredentialSource {
		return policy.CredentialSource{Env: "KEY", Dotenv: policy.Path{Text: path, Abs: path}}
	}
	good := write(t, 0o600, "KEY="+value+"\n")
	for _, c := range []struct {
		name      string
		environ   []string
		path      string
		want, err string
	}{
		{"file", nil, good, value, ""},
		{"environment first", []string{"KEY=from-environment"}, good, "from-environment", ""},
		{"empty in the environment", []string{"KEY="}, good, value, ""},
		{"no file but the environment", []string{"KEY=" + value}, "/nonexistent/env", value, ""},
		{"nothing", nil, "/nonexistent/env", "", "no such file"},
		{"not in it", nil, write(t, 0o600, "OTHER=x\n"), "", "does not set KEY"},
		{"open to others", nil, write(t, 0o644, "KEY="+value), "", "chmod 6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Reader{Environ: c.environ}.Read(context.Background(), source(c.path))
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %q, %v, want %q, %q", got, err, c.want, c.err)
			}
		})
	}
	for _, path := range []string{"/nonexistent/env", write(t, 0o600, "OTHER=x\n")} {
		if _, err := (Reader{}).Read(context.Background(), source(path)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want an error that an optional credential allows", err)
		}
	}
	r := Reader{Changeable: func(string) bool { return true }}
	if _, err := r.Read(context.Background(), source(filepath.Join(filepath.Dir(good), "none"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("not there: got %v, want that there is none", err)
	}
	if _, err := r.Read(context.Background(), source(good)); err == nil || !strings.Contains(err.Error(), "from inside") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestFileEntry(t *testing.T) {
	text := "registry=https://packages.example.org/\n//packages.example.org/:_authToken=first-value\n; //x/:_authToken=no\n" +
		"//packages.example.org/:_authToken = \"" + value + "\"\n"
	path := write(t, 0o600, text)
	source := policy.CredentialSource{File: policy.Path{Abs: path}, Key: "//packages.example.org/:_authToken"}
	if got, err := (Reader{}).Read(context.Background(), source); err != nil || got != value {
		t.Errorf("got %q, %v, want %q", got, err, value)
	}
	source.Key = "//x/:_authToken"
	if _, err := (Reader{}).Read(context.Background(), source); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that there is none", err)
	}
}
