package policy

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFindPolicy(t *testing.T) {
	w := newWorld(t)
	w.write("work/here.yaml", "version: 1\nname: here\n")
	w.write("work/sub/x.yaml", "version: 1\nname: sub\n")
	w.write("conf/mine.yaml", "version: 1\nname: mine\n")
	w.write("conf/here.yaml", "version: 1\nname: conf-here\n")
	if err := os.Mkdir(filepath.Join(w.work, "hermes-strict"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		arg, command string
		name, source string
	}{
		{"", "hermes", "hermes-strict", "builtin:hermes-strict"},
		{"", "bash", "strict", "builtin:strict"},
		{"strict", "bash", "strict", "builtin:strict"},
		{"strict.yaml", "bash", "strict", "builtin:strict"},
		{"builtin:strict", "bash", "strict", "builtin:strict"},
		{"here.yaml", "bash", "here", w.work + "/here.yaml"},
		{"./here.yaml", "bash", "here", w.work + "/here.yaml"},
		{"here", "bash", "conf-here", w.home + "/conf/here.yaml"},
		{"mine", "bash", "mine", w.home + "/conf/mine.yaml"},
		{"mine.yaml", "bash", "mine", w.home + "/conf/mine.yaml"},
		{"sub/x.yaml", "bash", "sub", w.work + "/sub/x.yaml"},
		{"hermes-strict", "bash", "hermes-strict", "builtin:hermes-strict"}, // a directory of that name is here
	}
	for _, tt := range tests {
		t.Run(tt.arg+" "+tt.command, func(t *testing.T) {
			o := w.opts
			o.Arg, o.Given, o.Command = tt.arg, tt.arg != "", tt.command
			p, err := Load(o)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Sources[len(p.Sources)-1].Name; p.Name != tt.name || got != tt.source {
				t.Errorf("got %v from %v, want %v from %v", p.Name, got, tt.name, tt.source)
			}
		})
	}
}

// F02: whatever is wrong with the path, no default takes its place.
func TestFindPolicyRefuses(t *testing.T) {
	w := newWorld(t)
	if err := syscall.Mkfifo(filepath.Join(w.work, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(w.write("work/open.yaml", "version: 1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, arg, want string }{
		{"missing path", "./nope.yaml", "no such file"},
		{"missing name", "nope", "no such policy"},
		{"empty", "", "the value is empty"},
		{"directory", ".", "is a directory"},
		{"directory with a slash", "../work", "is a directory"},
		{"FIFO", "fifo", "is not a regular file"},
		{"device", "/dev/null", "is not a regular file"},
		{"missing built-in", "builtin:nope", "no such built-in"},
		{"writable by everybody", "open.yaml", "is writable by everybody"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := w.opts
			o.Arg, o.Given = tt.arg, true
			if _, err := Load(o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestJudgeOwner(t *testing.T) {
	tests := []struct {
		name   string
		uid    uint32
		mode   os.FileMode
		refuse string
		warn   string
	}{
		{"own", 1000, 0o644, "", ""},
		{"root's", 0, 0o644, "", ""},
		{"another's", 1001, 0o600, "belongs to user 1001", ""},
		{"own, for everybody", 1000, 0o666, "is writable by everybody", ""},
		{"own, for the group", 1000, 0o664, "", "is writable by its group"},
		{"another's, for the group", 1001, 0o664, "belongs to user 1001", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			refuse, warn := judgeOwner(tt.mode, &syscall.Stat_t{Uid: tt.uid}, []int{0, 1000})
			if !strings.HasPrefix(refuse, tt.refuse) || (refuse == "") != (tt.refuse == "") || !strings.HasPrefix(warn, tt.warn) || (warn == "") != (tt.warn == "") {
				t.Errorf("got %q and %q, want %q and %q", refuse, warn, tt.refuse, tt.warn)
			}
		})
	}
}

// A floor that anybody but root can write is none.
func TestFloorOwner(t *testing.T) {
	w := newWorld(t)
	o := w.opts
	o.FloorPath = w.write("floor.yaml", "version: 1\n")
	if err := os.Chmod(o.FloorPath, 0o664); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(o); err == nil || !strings.Contains(err.Error(), "floor.yaml") {
		t.Errorf("got %v, want a refusal", err)
	}
	o.FloorPath = filepath.Join(w.home, "absent.yaml")
	if _, err := Load(o); err != nil {
		t.Errorf("absent floor: got %v, want no error", err)
	}
}

func TestExtends(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  string // sources by base name, or the error
	}{
		{"absent is strict", map[string]string{"p.yaml": ""}, "builtin:strict p.yaml"},
		{"nothing", map[string]string{"p.yaml": "extends: []"}, "p.yaml"},
		{"a file beside", map[string]string{"p.yaml": "extends: [./a.yaml]", "a.yaml": ""}, "builtin:strict a.yaml p.yaml"},
		{"shared base once", map[string]string{"p.yaml": "extends: [a.yaml, b.yaml]", "a.yaml": "", "b.yaml": ""}, "builtin:strict a.yaml b.yaml p.yaml"},
		{"relative to the file", map[string]string{"p.yaml": "extends: [sub/a.yaml]", "sub/a.yaml": "extends: [b.yaml]", "sub/b.yaml": "extends: []"}, "b.yaml a.yaml p.yaml"},
		{"itself", map[string]string{"p.yaml": "extends: [p.yaml]"}, "p.yaml:2:11: extends[0]: extends itself: "},
		{"cycle", map[string]string{"p.yaml": "extends: [a.yaml]", "a.yaml": "extends: [b.yaml]", "b.yaml": "extends: [./sub/../a.yaml]"}, "b.yaml:2:11: extends[0]: extends itself: "},
		{"missing", map[string]string{"p.yaml": "extends: [a.yaml]"}, "p.yaml:2:11: extends[0]: a.yaml: read policy: no such file or directory"},
		{"missing built-in", map[string]string{"p.yaml": "extends: [builtin:nope]"}, "p.yaml:2:11: extends[0]: builtin:nope: no such built-in policy"},
		{"mistake in the base", map[string]string{"p.yaml": "extends: [a.yaml]", "a.yaml": "nmae: x"}, "a.yaml:2:1: nmae: unknown key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			for name, text := range tt.files {
				w.write("work/"+name, "version: 1\n"+text+"\n")
			}
			o := w.opts
			o.Arg = "p.yaml"
			p, err := Load(o)
			if err != nil {
				if !strings.HasPrefix(err.Error(), tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				return
			}
			var names []string
			for _, s := range p.Sources {
				names = append(names, filepath.Base(s.Name))
			}
			if got := strings.Join(names, " "); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestHomeMismatch(t *testing.T) {
	w := newWorld(t)
	o := w.opts
	o.PasswdHome = filepath.Join(w.home, "real")
	p, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0].What, "the password database says") {
		t.Errorf("got %v, want one warning about HOME", p.Warnings)
	}
	// Both homes are protected.
	w.write("work/p.yaml", "version: 1\nfilesystem: {write: ["+o.PasswdHome+"]}\n")
	o.Arg = "p.yaml"
	if _, err := Load(o); err == nil || !strings.Contains(err.Error(), "writable") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestParsePasswd(t *testing.T) {
	const file = "root:x:0:0:root:/root:/bin/bash\nbroken:x:7\nu:x:1000:1000:,,,:/home/u:/bin/sh\nv:x:1000:1000::/home/v:/bin/sh\n"
	for uid, want := range map[int]string{0: "/root", 1000: "/home/u", 7: "", 8: ""} {
		if got := parsePasswd(strings.NewReader(file), uid); got != want {
			t.Errorf("uid %d: got %q, want %q", uid, got, want)
		}
	}
}

// A relative path on the command line climbs from the real directory.
func TestClimbBehindLink(t *testing.T) {
	w := newWorld(t)
	if err := os.MkdirAll(filepath.Join(w.home, "far/away"), 0o755); err != nil {
		t.Fatal(err)
	}
	symlink(t, filepath.Join(w.home, "far/away"), filepath.Join(w.work, "here"))
	o := w.opts
	o.Cwd = filepath.Join(w.work, "here")
	o.Flags.Read = []string{"../x"}
	p, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Filesystem.Read[1].Abs, resolve(filepath.Join(w.home, "far/x")); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A name is never inherited: state is kept by it.
func TestNameWithoutOne(t *testing.T) {
	w := newWorld(t)
	for file, want := range map[string]string{"mine.yaml": "mine", "a b.yaml": "unnamed", "..yaml": "unnamed"} {
		w.write("work/"+file, "version: 1\n")
		o := w.opts
		o.Arg = "./" + file
		p, err := Load(o)
		if err != nil || p.Name != want {
			t.Errorf("%s: got %q and %v, want %q", file, p.Name, err, want)
		}
	}
}
