package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// surrounding is a launch with something wrong around it, without touching a
// system call: limits, places, files.
type surrounding struct {
	step, kind, what string
	// words go before the launcher's; they execute it.
	words []string
	// script is the same as words of sh, run as root in a mount namespace of its
	// own, with $RUN and $STATE; "" for none.
	script string
	spoil  func(w *world) error
}

// surroundings are all of them.
func surroundings() []surrounding {
	return slices.Concat(limits(), places(), records(), policies(), mounts())
}

// limits are those of the session, too low.
func limits() (out []surrounding) {
	low := func(step, name string, values ...string) {
		for _, v := range values {
			out = append(out, surrounding{step: step, kind: "limit", what: name + " " + v, words: []string{"prlimit", "--" + name + "=" + v + ":" + v, "--"}})
		}
	}
	low("preflight", "nofile", "3", "5", "8", "10", "12", "14", "16", "20", "24", "32", "48", "64", "1024")
	low("preflight", "nproc", "1", "2", "4", "6", "8", "12", "16", "24", "32")
	low("preflight", "as", "64000000", "300000000", "700000000", "1500000000", "4000000000")
	low("preflight", "fsize", "0", "100", "4096", "100000")
	low("preflight", "sigpending", "0", "8")
	low("preflight", "memlock", "0")
	low("preflight", "msgqueue", "0")
	low("preflight", "stack", "65536", "1000000")
	low("preflight", "data", "1000000", "50000000")
	return out
}

// places are the runtime directory and where records lie.
func places() []surrounding {
	at := func(step, what string, spoil func(w *world) error) surrounding {
		return surrounding{step: step, kind: "place", what: what, spoil: spoil}
	}
	replaced := func(dir func(w *world) string, with func(path string) error) func(w *world) error {
		return func(w *world) error {
			return errors.Join(os.RemoveAll(dir(w)), with(dir(w)), w.own(filepath.Dir(dir(w))))
		}
	}
	base := func(w *world) string { return filepath.Join(w.runtime, "hermes-wrap") }
	sessions := func(w *world) string { return filepath.Join(w.state, "sessions") }
	file := func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }
	link := func(path string) error { return os.Symlink("/tmp", path) }
	open := func(path string) error { return errors.Join(os.Mkdir(path, 0o777), os.Chmod(path, 0o777)) }
	closed := func(path string) error { return errors.Join(os.Mkdir(path, 0o500), os.Chmod(path, 0o500)) }
	return []surrounding{
		at("runtime", "the runtime directory is a file", replaced(base, file)),
		at("runtime", "the runtime directory is a link", replaced(base, link)),
		at("runtime", "anybody may write the runtime directory", replaced(base, open)),
		at("runtime", "the runtime directory may not be written", replaced(base, closed)),
		at("runtime", "the path of the runtime directory is too long for a socket", func(w *world) error {
			w.runtime = filepath.Join(w.dir, strings.Repeat("long", 30), "run")
			w.env = append(w.env, "XDG_RUNTIME_DIR="+w.runtime)
			return errors.Join(os.MkdirAll(filepath.Join(w.runtime, "hermes-wrap"), 0o700), w.own(w.dir))
		}),
		at("runtime", "the directory of records is a file", replaced(sessions, file)),
		at("runtime", "the directory of records may not be written", replaced(sessions, closed)),
		at("runtime", "there is no home", func(w *world) error {
			w.env = append(w.env, "HOME="+filepath.Join(w.dir, "nowhere"))
			return nil
		}),
	}
}

// damages are what a crash, a full disk or another program makes of a file.
var damages = map[string]func(path string) error{ //nolint:gochecknoglobals // a table
	"is empty":     func(path string) error { return os.Truncate(path, 0) },
	"is truncated": func(path string) error { return halve(path) },
	"is rubbish": func(path string) error {
		return os.WriteFile(path, []byte(strings.Repeat("\x00\xffrubbish{", 999)), 0o600)
	},
	"is a directory": func(path string) error {
		return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
	},
	"is a FIFO": func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
	"is a link to itself": func(path string) error {
		return errors.Join(os.Remove(path), os.Symlink(path, path))
	},
	"may not be read":        func(path string) error { return os.Chmod(path, 0) },
	"may be written by all":  func(path string) error { return os.Chmod(path, 0o666) },
	"is huge":                func(path string) error { return os.Truncate(path, 1<<32) },
	"ends in half a line":    func(path string) error { return appendTo(path, `{"half": "a li`) },
	"has a line from beyond": func(path string) error { return appendTo(path, `{"class_uid": 1}`+"\n") },
}

func halve(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()/2)
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// damaged spoils the first file that a pattern finds, in each way.
func damaged(step, kind, name, pattern string, skip ...string) (out []surrounding) {
	for how, damage := range damages {
		if slices.Contains(skip, how) {
			continue
		}
		out = append(out, surrounding{step: step, kind: kind, what: name + " " + how, spoil: func(w *world) error {
			found, err := filepath.Glob(filepath.Join(w.dir, pattern))
			if err != nil || len(found) == 0 {
				return fmt.Errorf("%s: nothing at %q", name, pattern)
			}
			return errors.Join(damage(found[len(found)-1]), w.own(w.dir))
		}})
	}
	slices.SortFunc(out, func(a, b surrounding) int { return strings.Compare(a.what, b.what) })
	return out
}

// records are files that earlier runs left.
func records() []surrounding {
	const state = "home/.local/state/hermes-wrap/"
	return slices.Concat(
		damaged("runtime", "state", "the record of an earlier session", state+"sessions/*/session.json"),
		damaged("runtime", "state", "the audit record", state+"audit.jsonl"),
		damaged("runtime", "state", "the audit key", state+"audit.key"),
	)
}

// policies are a policy in the middle of being written, and worse.
func policies() []surrounding {
	return damaged("compile", "policy", "the policy", "policy.yaml", "ends in half a line", "has a line from beyond")
}

// mounts need a mount namespace, which root can make.
func mounts() []surrounding {
	full := "dd if=/dev/zero of=$1/full bs=4k 2>/dev/null || :"
	one := func(step, what, script string) surrounding {
		return surrounding{step: step, kind: "mount", what: what, script: script}
	}
	return []surrounding{
		one("runtime", "the runtime directory is full", "small $RUN 16k 99; fill() { "+full+"; }; fill $RUN"),
		one("runtime", "the runtime directory has no inodes left", "small $RUN 1m 1"),
		one("runtime", "the runtime directory has 3 inodes left", "small $RUN 1m 4"),
		one("runtime", "the runtime directory is read-only", "small $RUN 1m 99; mount -o remount,ro $RUN"),
		one("runtime", "the disk of the records is full", "small $STATE 16k 99; fill() { "+full+"; }; fill $STATE"),
		one("runtime", "the disk of the records has no inodes left", "small $STATE 1m 3"),
		one("runtime", "the disk of the records is read-only", "small $STATE 1m 99; mount -o remount,ro $STATE"),
		one("runtime", "the disk of the records has 8 KiB left", "small $STATE 8k 99"),
		one("container", "there are no control groups", "mount -t tmpfs none /sys/fs/cgroup"),
		one("container", "control groups are read-only", "for m in $(awk '$2 ~ \"^/sys/fs/cgroup\" {print $2}' /proc/mounts); do mount -o bind,remount,ro $m; done"),
		one("container", "/sys is not there", "mount -t tmpfs none /sys"),
		one("compile", "/proc is read-only", "mount -o bind,remount,ro /proc"),
		one("root", "/tmp may not be written", "mount -t tmpfs -o ro none /tmp"),
		one("exec", "the clock since the boot jumps by a year", "time"),
	}
}

const prelude = `set -e; small() { mount -t tmpfs -o size=$2,nr_inodes=$3 none $1; chmod 700 $1; chown $OWNER $1; }; `

// line is the command line with what goes before it.
func (w *world) line(s surrounding) []string {
	argv := w.words()
	if s.script == "" {
		return append(slices.Clone(s.words), argv...)
	}
	out := []string{"unshare", "--mount", "--propagation", "private", "--"}
	if s.script == "time" {
		out, s.script = []string{"unshare", "--time", "--monotonic", "31536000", "--boottime", "31536000", "--"}, ":"
	}
	out = append(out, "sh", "-c", prelude+s.script+`; exec "$@"`, "sh")
	if w.drop {
		out = append(out, "setpriv", fmt.Sprintf("--reuid=%d", w.uid), fmt.Sprintf("--regid=%d", w.gid), fmt.Sprintf("--groups=%d", w.gid), "--")
	}
	return append(out, argv...)
}

var policyMessage = regexp.MustCompile(`(?m)^hermes-wrap: error: (.*(?:policy|floor|\.hermes-wrap)\.yaml.*)$`)

// around launches once with something wrong, and says what came of it; full is
// what the probe says without limits of the session's own.
func (s *workshop) around(ctx context.Context, name string, one surrounding, full string) (result, error) {
	w, err := s.newWorld(name, strictPolicy)
	if err != nil {
		return result{}, err
	}
	defer w.close()
	defer os.RemoveAll(w.dir)
	if e, err := w.run(ctx, never); err != nil || e.exit != probeExit {
		return result{}, fmt.Errorf("launch in a new world: exit %d: %w\n%s", e.exit, err, e.err)
	}
	if one.spoil != nil {
		if err := one.spoil(w); err != nil {
			return result{}, fmt.Errorf("%s: %w", one.what, err)
		}
	}
	w.remember()
	w.asRoot = one.script != ""
	e, err := w.run(ctx, never, w.line(one)...)
	if err != nil {
		return result{}, err
	}
	r := result{fault: fault{role: one.step, kind: one.kind, detail: one.what}, err: e.err}
	e.out, full = strings.ReplaceAll(withoutLimits(e.out), "WORLD/nowhere", "WORLD/home"), withoutLimits(full)
	r.verdict = judge(e, full)
	if one.kind == "limit" && (e.exit == exitRuntime || e.exit == exitAborted || e.exit == exitSegmented) && !e.ran && !e.hung && len(e.left) == 0 {
		r.verdict = verdict{step: "Go"}
	}
	// Where there is no home the launch makes the directory of records with it.
	left := slices.DeleteFunc(w.leftovers(), func(name string) bool { return strings.Contains(name, "/nowhere") })
	if r.wrong == "" && len(left) > 0 {
		r.wrong = "left behind: " + strings.Join(left[:min(3, len(left))], ", ")
	}
	return r, nil
}

// never is a rule that no launch reaches.
const never = "launcher:*:1000000000:kill"

func withoutLimits(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "limit ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
