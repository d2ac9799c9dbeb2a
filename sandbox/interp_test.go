package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// layout makes files below a new directory and gives it: "path": content, a
// symlink as "-> target", a directory with a trailing slash. What starts with
// "#!" or lies in a bin directory is executable. "$T" in a content is the directory.
func layout(t *testing.T, files map[string]string) string {
	t.Helper()
	// In /tmp whatever TMPDIR says, so that golden plans do not depend on it.
	dir, err := os.MkdirTemp("/tmp", "layout-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, text := range files {
		path := filepath.Join(dir, name)
		text = strings.ReplaceAll(text, "$T", dir)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, path)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			mode := fs.FileMode(0o644)
			if strings.HasPrefix(text, "#!") || filepath.Base(filepath.Dir(path)) == "bin" {
				mode = 0o755
			}
			err = os.WriteFile(path, []byte(text), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// under leaves the paths below dir, without it.
func under(dir string, paths []string) (out []string) {
	for _, p := range paths {
		if within(p, dir) {
			out = append(out, strings.TrimPrefix(p, dir+"/"))
		}
	}
	return out
}

func TestChain(t *testing.T) {
	uv := map[string]string{
		"home/uv/cpython-3.12.4/bin/python3.12":              "an interpreter",
		"home/uv/cpython-3.12.4/lib/python3.12/":             "",
		"home/uv/cpython-3.12":                               "-> cpython-3.12.4",
		"home/app/venv/bin/python":                           "-> $T/home/uv/cpython-3.12/bin/python3.12",
		"home/app/venv/bin/python3":                          "-> python",
		"home/app/venv/bin/hermes":                           "#!$T/home/app/venv/bin/python3\nimport sys",
		"home/app/venv/pyvenv.cfg":                           "home = $T/home/uv/cpython-3.12/bin\n",
		"home/app/venv/lib/python3.12/site-packages/app.pth": "$T/home/app/src\nimport something\nrelative\n/no/such\n",
		"home/app/src/":                                      "",
		"home/.local/bin/hermes":                             "-> $T/home/app/venv/bin/hermes",
		"home/.ssh/id_ed25519":                               "a secret",
		"home/.local/lib/python3.1/":                         "",
	}
	cases := []struct {
		name    string
		files   map[string]string
		program string
		want    []string
		missing string
	}{
		{name: "a virtual environment through three links", files: uv, program: "home/.local/bin/hermes", want: []string{
			"home/.local/bin/hermes", "home/app/venv", "home/uv/cpython-3.12", "home/app/src",
			"home/app/venv/bin/python3", "home/uv/cpython-3.12.4",
		}},
		{name: "shebang of a shebang", program: "home/bin/outer", files: map[string]string{
			"home/bin/outer": "#!$T/home/bin/middle -x\n", "home/bin/middle": "#!$T/home/bin/inner\n", "home/bin/inner": "a program",
		}, want: []string{"home/bin/outer", "home/bin/middle", "home/bin/inner"}},
		{name: "env looks on the path", program: "home/npm/bin/tool", files: map[string]string{
			"home/npm/bin/tool": "#!/usr/bin/env -S node --x\n", "home/node/bin/node": "a program", "home/node/lib/node_modules/": "",
		}, want: []string{"home/npm/bin/tool", "home/node/bin/node", "home/node"}},
		{name: "env finds nothing", program: "home/npm/bin/tool", files: map[string]string{
			"home/npm/bin/tool": "#!/usr/bin/env nodx\n",
		}, want: []string{"home/npm/bin/tool"}, missing: "nodx"},
		{name: "a missing interpreter is named", program: "home/bin/tool", files: map[string]string{
			"home/bin/tool": "#!$T/home/gone/bin/python3\n",
		}, want: []string{"home/bin/tool"}, missing: "home/gone/bin/python3"},
		{name: "a node prefix", program: "home/node/bin/npm", files: map[string]string{
			"home/node/bin/npm": "-> ../lib/node_modules/npm/bin/cli.js", "home/node/lib/node_modules/npm/bin/cli.js": "#!/usr/bin/env node\n", "home/node/bin/node": "a program",
		}, want: []string{"home/node/bin/npm", "home/node", "home/node/bin/node"}},
		{name: "a shim", program: "home/.local/bin/tool", files: map[string]string{
			"home/.local/bin/tool": "#!/bin/sh\n# made by an installer\nexec \"$T/home/opt/bin/tool\" \"$@\"\nexec $T/home/not/there\n", "home/opt/bin/tool": "a program",
		}, want: []string{"home/.local/bin/tool", "home/opt/bin/tool"}},
		{name: "what is no program is not shown", program: "home/bin/tool", files: map[string]string{
			"home/bin/tool": "#!$T/home/.ssh/id_ed25519\nexec $T/home/.ssh/id_ed25519\n", "home/.ssh/id_ed25519": "a secret",
		}, want: []string{"home/bin/tool"}},
		{name: "a loop ends", program: "home/bin/a", files: map[string]string{
			"home/bin/a": "#!$T/home/bin/b\n", "home/bin/b": "#!$T/home/bin/a\n",
		}, want: []string{"home/bin/a", "home/bin/b"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := layout(t, c.files)
			search := filepath.Join(dir, "home/node/bin") + ":/usr/bin:/bin"
			got := followChain(filepath.Join(dir, c.program), filepath.Join(dir, "home"), search, func(string) bool { return false })
			if diff := cmp.Diff(c.want, under(dir, got.paths)); diff != "" {
				t.Errorf("shown (-want +got):\n%s", diff)
			}
			err := got.explainMissing()
			if (err != nil) != (c.missing != "") || err != nil && !strings.Contains(err.Error(), c.missing) {
				t.Errorf("missing: got %v, want %q", err, c.missing)
			}
		})
	}
}

// An earlier run may have written to the workspace. The same files elsewhere
// do open what they name.
func TestChainBelievesNoWritableFile(t *testing.T) {
	files := map[string]string{
		"ws/venv/bin/tool":                           "#!$T/ws/venv/bin/python\n",
		"ws/venv/bin/python":                         "a program",
		"ws/venv/pyvenv.cfg":                         "home = /usr/bin\n",
		"ws/venv/lib/python3.12/site-packages/x.pth": "$T/home/.ssh\n",
		"home/.ssh/id_ed25519":                       "a secret",
	}
	for _, c := range []struct {
		name     string
		writable bool
		want     []string
	}{
		{"control: read-only", false, []string{"ws/venv/bin/tool", "ws/venv", "home/.ssh", "ws/venv/bin/python"}},
		{"writable", true, []string{"ws/venv/bin/tool", "ws/venv", "ws/venv/bin/python"}},
	} {
		dir := layout(t, files)
		got := followChain(filepath.Join(dir, "ws/venv/bin/tool"), filepath.Join(dir, "home"), "", func(p string) bool {
			return c.writable && within(p, filepath.Join(dir, "ws"))
		})
		if diff := cmp.Diff(c.want, under(dir, got.paths)); diff != "" {
			t.Errorf("%s: shown (-want +got):\n%s", c.name, diff)
		}
	}
}

// The environment lies in the workspace, under whatever name it is reached.
func TestChainBelievesNoWritableFileThroughALink(t *testing.T) {
	dir := layout(t, map[string]string{
		"home/venv": "-> ../ws/venv", "ws/venv/bin/tool": "x", "ws/venv/pyvenv.cfg": "home = /usr/bin\n",
		"ws/venv/lib/python3.12/site-packages/x.pth": "$T/home/.ssh\n", "home/.ssh/id_ed25519": "a secret",
	})
	c := chain{home: filepath.Join(dir, "home"), writable: func(p string) bool { return within(p, filepath.Join(dir, "ws")) }}
	if diff := cmp.Diff([]string{"home/venv"}, under(dir, c.installation(filepath.Join(dir, "home/venv/bin/tool")))); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
}

func TestInstallationIsNeverAHome(t *testing.T) {
	dir := layout(t, map[string]string{
		"home/bin/tool": "x", "home/lib/python3.12/": "", "home/.local/bin/tool": "x", "home/.local/lib/python3.12/": "",
		"home/pyvenv.cfg": "home = /usr/bin\n", "home/ok/bin/tool": "x", "home/ok/lib/python3.12/": "", "bin/tool": "x", "lib/python3.12/": "",
		"ws/home": "-> $T/home", "ws/local": "-> ../home/.local", "ws/above": "-> $T", "ws/ok": "-> $T/home/ok",
	})
	c := chain{home: filepath.Join(dir, "home"), writable: func(string) bool { return false }}
	for program, want := range map[string][]string{
		"home/bin/tool": nil, "home/.local/bin/tool": nil, "bin/tool": nil, "home/ok/bin/tool": {"home/ok"},
		"ws/home/bin/tool": nil, "ws/local/bin/tool": nil, "ws/above/bin/tool": nil, "ws/ok/bin/tool": {"ws/ok"},
	} {
		if diff := cmp.Diff(want, under(dir, c.installation(filepath.Join(dir, program)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", program, diff)
		}
	}
	for _, program := range []string{"/usr/bin/python3", "/usr/local/bin/node", "/bin/sh"} {
		if got := c.installation(program); got != nil {
			t.Errorf("%s: got %v, want nothing", program, got)
		}
	}
}

func TestLookup(t *testing.T) {
	dir := layout(t, map[string]string{"a/bin/tool": "x", "b/bin/tool": "x", "b/bin/other": "x", "c/tool": "not executable", "c/plain": "x", "d/tool/": ""})
	search := strings.Join([]string{filepath.Join(dir, "d"), filepath.Join(dir, "c"), filepath.Join(dir, "a/bin"), filepath.Join(dir, "b/bin")}, ":")
	cases := []struct {
		name, want string
		err        error
	}{
		{"tool", "a/bin/tool", nil},
		{"other", "b/bin/other", nil},
		{"plain", "", ErrNotExecutable},
		{"nothing", "", ErrNotFound},
		{"", "", ErrNotFound},
		{"./b/bin/other", "b/bin/other", nil},
		{"c/plain", "c/plain", ErrNotExecutable},
		{"d/tool", "d/tool", ErrNotExecutable},
		{"./missing", "missing", ErrNotFound},
	}
	for _, c := range cases {
		got, err := lookup(c.name, search, dir)
		want := c.want
		if want != "" {
			want = filepath.Join(dir, want)
		}
		if got != want || !errors.Is(err, c.err) {
			t.Errorf("%q: got %q, %v, want %q, %v", c.name, got, err, want, c.err)
		}
	}
}
