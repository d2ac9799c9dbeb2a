// Package starter tests what the launcher starts in a sandbox that runs: that it
// is confined like the command, and that nothing inside gets at what starts it.
package starter

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/test/starter/wire"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) {
	code := wraptest.Main(m)
	if launcher.dir != "" {
		_ = os.RemoveAll(launcher.dir)
	}
	os.Exit(code)
}

// strict is what every test here runs under.
const strict = "version: 1\nname: starter\nextends: [builtin:strict]\n"

// TestConfined: what a task may not do, it could do outside.
func TestConfined(t *testing.T) {
	w := wraptest.New(t)
	dir := w.Dir(t, "work")
	w.Write(t, filepath.Join(w.Home, "secret"), "the secret\n")
	host := w.Bare(dir, "sleep", "600")
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Process.Kill(); _ = host.Wait() })
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := open(t, w, dir, strict, "hold")
	for name, c := range map[string]struct{ script, denial string }{
		"create a protected name": {"echo x > .envrc", "Read-only file system"},
		"read outside the view":   {"cat " + w.Home + "/secret", "No such file or directory"},
		"connect to the host":     {fmt.Sprintf("exec bash -c 'echo > /dev/tcp/127.0.0.1/%d'", l.Addr().(*net.TCPAddr).Port), "Connection refused"},
		"make a user namespace":   {"unshare -U true", "Operation not permitted"},
		"signal a host process":   {fmt.Sprintf("kill -0 %d", host.Process.Pid), "No such process"},
		// Its mode allows it and it is visible: Landlock alone denies it.
		"read the plan's probe": {"cat /run/hermes-wrap/no-landlock-rule", "Permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "read the plan's probe" {
				if r := wraptest.Run(t, w.Bare(dir, "sh", "-c", "export LC_ALL=C; "+c.script), limit); r.Exit != 0 {
					t.Fatalf("outside: got exit %d, want 0\n%s", r.Exit, r.Err)
				}
				_ = os.Remove(filepath.Join(dir, ".envrc"))
			}
			out, ws := s.sh(t, "export LC_ALL=C; "+c.script)
			if ws.ExitStatus() == 0 || !strings.Contains(out, c.denial) {
				t.Errorf("inside: got exit %d and %q, want a failure with %q", ws.ExitStatus(), out, c.denial)
			}
		})
	}
}

// TestSameDomain: the command and a task show the same confinement and can
// signal each other, which processes of two Landlock domains cannot.
func TestSameDomain(t *testing.T) {
	w := wraptest.New(t)
	dir := w.Dir(t, "work")
	const status = "grep -E '^(Uid|Gid|Cap|NoNewPrivs|Seccomp|SigIgn|SigBlk)' /proc/self/status; ulimit -a; umask; env | sort | grep -v ^_=; pwd"
	s := open(t, w, dir, strict, "run", "sh", "-c",
		"("+status+") > command.txt; trap 'kill -USR2 $(cat task)' USR1; echo $$ > command; while :; do sleep 0.05; done")
	waitFile(t, filepath.Join(dir, "command"))
	out, ws := s.sh(t, status)
	if want := read(t, filepath.Join(dir, "command.txt")); out != want || ws != 0 {
		t.Errorf("got a task with\n%s\nwant what the command has:\n%s", out, want)
	}
	out, ws = s.sh(t, "trap 'exit 42' USR2; echo $$ > task; kill -USR1 $(cat command) || exit 1; while :; do sleep 0.05; done")
	if ws.ExitStatus() != 42 {
		t.Errorf("got exit %d and %q, want the command's answer to end it with 42", ws.ExitStatus(), out)
	}
}

// TestStarterIsClosed: the agent can neither look into the starter nor use it,
// and killing it ends the run.
func TestStarterIsClosed(t *testing.T) {
	w := wraptest.New(t)
	s := open(t, w, w.Dir(t, "work"), strict, "hold")
	out, _ := s.sh(t, findStarter+`export LC_ALL=C; [ $PPID = 1 ] && cat /proc/$S/comm; for f in mem environ maps auxv fd/0 fd/4 cwd; do
		if head -c1 /proc/$S/$f >/dev/null 2>&1 || readlink /proc/$S/$f; then echo "$f is open"; fi
		if [ $f != cwd ] && ! head -c0 /proc/self/environ; then echo "control fails"; fi
	done; grep -E '^(NoNewPrivs|Seccomp):' /proc/$S/status`)
	if want := "hw-starter\nNoNewPrivs:\t1\nSeccomp:\t2\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	s.ask(t, wire.Request{Op: "start", Argv: []string{"sh", "-c", findStarter + "kill -9 $S; sleep 600"}})
	if last := s.last(t); !strings.Contains(last.Error, "starter ended (killed by SIGKILL)") {
		t.Errorf("got %+v, want the run ended for the starter's end", last)
	}
}

// findStarter sets S in a shell inside.
const findStarter = "for p in /proc/[0-9]*; do case $(cat $p/comm) in hw-starter) S=${p#/proc/};; esac; done\n"

// TestStarting: programs are found as by execvp(3), and errors are the kernel's.
func TestStarting(t *testing.T) {
	w := wraptest.New(t)
	dir := w.Dir(t, "work")
	w.Write(t, filepath.Join(dir, "plain"), "no program\n")
	s := open(t, w, dir, strict, "hold")
	for name, c := range map[string]struct {
		q    wire.Request
		want unix.Errno
	}{
		"missing":                 {wire.Request{Argv: []string{"no-such-program"}}, unix.ENOENT},
		"missing path":            {wire.Request{Argv: []string{"./no/such"}}, unix.ENOENT},
		"not executable":          {wire.Request{Argv: []string{"./plain"}}, unix.EACCES},
		"missing cwd":             {wire.Request{Argv: []string{"true"}, Cwd: "/nowhere"}, 0},
		"more than the kernel's":  {wire.Request{Argv: []string{"true"}, Long: 1000}, unix.E2BIG},
		"a zero byte":             {wire.Request{Argv: []string{"a\x00b"}}, unix.EINVAL},
		"PATH of its environment": {wire.Request{Argv: []string{"sh"}, Env: []string{"PATH=/nowhere"}}, unix.ENOENT},
	} {
		t.Run(name, func(t *testing.T) {
			c.q.Op = "start"
			if a := s.ask(t, c.q); a.Error == "" || unix.Errno(a.Errno) != c.want {
				t.Errorf("got %+v, want the error %v", a, c.want)
			}
		})
	}
	t.Run("1 MiB of arguments", func(t *testing.T) {
		out, ws := s.wait(t, s.start(t, wire.Request{Argv: []string{"sh", "-c", `echo $# ${#32}`, "sh"}, Long: 32}))
		if ws != 0 || out != "32 32768\n" {
			t.Errorf("got status %v and %q, want 32 arguments", ws, out)
		}
	})
	t.Run("environment and place", func(t *testing.T) {
		out, _ := s.wait(t, s.start(t, wire.Request{Argv: []string{"/bin/sh", "-c", "echo $A; pwd"}, Env: []string{"A=b"}, Cwd: "/tmp"}))
		if out != "b\n/tmp\n" {
			t.Errorf("got %q, want its own variable and directory", out)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		out, ws := s.wait(t, s.start(t, wire.Request{Argv: []string{"sh", "-c", "tty; stty size; : > /dev/tty; exit 7"}, Terminal: true}))
		if out != "/dev/pts/0\r\n33 77\r\n" || ws.ExitStatus() != 7 {
			t.Errorf("got exit %d and %q, want a controlling terminal of 33 lines", ws.ExitStatus(), out)
		}
	})
	t.Run("signals", func(t *testing.T) {
		for _, c := range []struct {
			group bool
			want  string
		}{{false, "child\n"}, {true, ""}} {
			_ = os.Remove(filepath.Join(dir, "up"))
			id := s.start(t, wire.Request{Argv: []string{"sh", "-c", "(sleep 1; echo child) & : >up; exec sleep 600"}})
			waitFile(t, filepath.Join(dir, "up"))
			s.ask(t, wire.Request{Op: "signal", Task: id, Signal: int(unix.SIGTERM), Group: c.group})
			if out, ws := s.wait(t, id); ws.Signal() != unix.SIGTERM || out != c.want {
				t.Errorf("group %v: got status %v and %q, want SIGTERM and %q", c.group, ws, out, c.want)
			}
		}
	})
}

// TestManyTasks: nothing is left of tasks that ended.
func TestManyTasks(t *testing.T) {
	w := wraptest.New(t)
	s := open(t, w, w.Dir(t, "work"), strict, "hold")
	const many, atOnce = 1000, 8
	slots := make(chan struct{}, atOnce)
	bad := make(chan string, many)
	for i := range many {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			a := s.ask(t, wire.Request{Op: "start", Argv: []string{"sh", "-c", fmt.Sprintf("exit %d", i%100)}})
			if a = s.ask(t, wire.Request{Op: "wait", Task: a.Id}); unix.WaitStatus(a.Status).ExitStatus() != i%100 || a.Error != "" {
				bad <- fmt.Sprintf("%+v, want exit %d", a, i%100)
			}
		}()
	}
	for range atOnce {
		slots <- struct{}{}
	}
	select {
	case b := <-bad:
		t.Errorf("got %s (and %d more)", b, len(bad))
	default:
	}
	if out, _ := s.sh(t, "cat /proc/[0-9]*/stat | grep -c ') Z '"); out != "0\n" {
		t.Errorf("got %q zombies, want 0", out)
	}
}

// TestPause: nothing runs while the run is paused, not even what forks all the
// time; what was stopped before stays so.
func TestPause(t *testing.T) {
	w := wraptest.New(t)
	dir := w.Dir(t, "work")
	s := open(t, w, dir, strict, "run", "sh", "-c", "while :; do echo x >> ticks; (echo y >> ticks) & wait; sleep 0.01; done")
	ticks := filepath.Join(dir, "ticks")
	waitFile(t, ticks)
	stopped := s.start(t, wire.Request{Argv: []string{"sh", "-c", "kill -STOP $$; echo on > stopped"}})
	// One that stops itself while a pause begins looks as if the pause had done it.
	until(t, "the task stops itself", func() bool { return bytes.IndexByte(s.states(t), 'T') >= 0 })
	for range 10 {
		if a := s.ask(t, wire.Request{Op: "pause"}); a.Error != "" {
			t.Fatal(a.Error)
		}
		before := read(t, ticks)
		late := make(chan wire.Answer, 1)
		q := s.number(wire.Request{Op: "start", Argv: []string{"sh", "-c", "echo late"}})
		go func() { late <- s.put(t, q) }()
		for _, state := range s.states(t) {
			if state == 'R' || state == 'S' {
				t.Errorf("got a process in state %c, want none that runs", state)
			}
		}
		if after := read(t, ticks); after != before {
			t.Errorf("got %d bytes more in a paused run, want 0", len(after)-len(before))
		}
		if a := s.ask(t, wire.Request{Op: "resume"}); a.Error != "" {
			t.Fatal(a.Error)
		}
		if out, ws := s.wait(t, (<-late).Id); out != "late\n" || ws != 0 {
			t.Errorf("got %q (status %v) of a task started meanwhile, want it to run", out, ws)
		}
		until(t, "the command goes on", func() bool { return len(read(t, ticks)) > len(before) })
	}
	if _, err := os.Stat(filepath.Join(dir, "stopped")); err == nil {
		t.Error("got the stopped task continued, want it to stay stopped")
	}
	s.ask(t, wire.Request{Op: "pause"})
	s.ask(t, wire.Request{Op: "signal", Task: stopped, Signal: int(unix.SIGKILL)})
	s.ask(t, wire.Request{Op: "end", Signal: 5 << 8})
	if last := s.last(t); unix.WaitStatus(last.Status).ExitStatus() != 5 || last.Error != "" {
		t.Errorf("got %+v at the end of a paused run, want exit 5", last)
	}
}

// TestSockets: the launcher reaches servers inside, and none of the host's.
func TestSockets(t *testing.T) {
	w := wraptest.New(t)
	dir := w.Dir(t, "work")
	outer, err := net.Listen("unix", filepath.Join(dir, "host.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	if err := os.Chmod(filepath.Join(dir, "host.sock"), 0o777); err != nil {
		t.Fatal(err)
	}
	s := open(t, w, dir, strict, "hold")
	const echo = `import socket,sys,os
s=socket.socket(socket.AF_UNIX) if len(sys.argv)>1 else socket.socket()
s.bind(sys.argv[1] if len(sys.argv)>1 else ("127.0.0.1",8642)); s.listen(); open("up","w").close()
c=s.accept()[0]; c.sendall(c.recv(99))`
	for address, argv := range map[string][]string{
		"tcp:8642": {}, "unix:/tmp/in.sock": {"/tmp/in.sock"}, "unix:" + dir + "/in.sock": {dir + "/in.sock"},
	} {
		_ = os.Remove(filepath.Join(dir, "up"))
		s.start(t, wire.Request{Argv: append([]string{"python3", "-c", echo}, argv...)})
		waitFile(t, filepath.Join(dir, "up"))
		if a := s.ask(t, wire.Request{Op: "dial", Path: address}); a.Out != "ping\n" || a.Error != "" {
			t.Errorf("dial %s: got %+v, want the answer", address, a)
		}
	}
	s.sh(t, "ln -s "+dir+"/host.sock /tmp/led; ln -s /nowhere "+dir+"/nowhere")
	for address, want := range map[string]unix.Errno{
		"unix:/tmp/led": unix.EACCES, "unix:" + dir + "/nowhere": unix.ENOENT, "tcp:1": unix.ECONNREFUSED,
	} {
		if a := s.ask(t, wire.Request{Op: "dial", Path: address}); unix.Errno(a.Errno) != want {
			t.Errorf("dial %s: got %+v, want %v", address, a, want)
		}
	}
	for _, network := range []string{"unix", "unixgram"} {
		q := s.number(wire.Request{Op: "listen", Path: network + ":/tmp/" + network})
		done := make(chan wire.Answer, 1)
		go func() { done <- s.put(t, q) }()
		out, ws := s.sh(t, fmt.Sprintf("while ! [ -S /tmp/%[1]s ]; do sleep 0.02; done; stat -c %%a /tmp/%[1]s; exec python3 -c '%s'", network,
			fmt.Sprintf(`import socket; s=socket.socket(socket.AF_UNIX,socket.%s); s.connect("/tmp/%s"); s.send(b"hello")`,
				map[string]string{"unix": "SOCK_STREAM", "unixgram": "SOCK_DGRAM"}[network], network)))
		if out != "600\n" || ws != 0 {
			t.Errorf("%s: got %q and status %v, want a socket of mode 600 that can be reached", network, out, ws)
		}
		if a := <-done; a.Out != "hello" {
			t.Errorf("%s: got %+v, want what was sent", network, a)
		}
	}
	for _, path := range []string{dir + "/ours", "/tmp/back/ours", "/usr/ours"} {
		s.sh(t, "ln -sfn "+dir+" /tmp/back")
		if a := s.ask(t, wire.Request{Op: "listen", Path: "unix:" + path}); a.Error == "" {
			t.Errorf("listen at %s: got a socket, want none in a tree of the host", path)
		}
	}
}

// TestEnds: a run without a command goes on until it is ended or stopped.
func TestEnds(t *testing.T) {
	w := wraptest.New(t)
	t.Run("ended", func(t *testing.T) {
		s := open(t, w, w.Dir(t, "ended"), strict, "hold")
		s.ask(t, wire.Request{Op: "end", Signal: int(unix.SIGTERM)})
		if last := s.last(t); unix.WaitStatus(last.Status).Signal() != unix.SIGTERM || last.Error != "" {
			t.Errorf("got %+v, want the status that was given", last)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		dir := w.Dir(t, "stopped")
		s := open(t, w, dir, strict, "hold")
		id := s.start(t, wire.Request{Argv: []string{"sh", "-c", "trap 'echo bye; exit 3' TERM; : > up; while :; do sleep 0.05; done"}})
		waitFile(t, filepath.Join(dir, "up"))
		s.ask(t, wire.Request{Op: "stop"})
		if out, ws := s.wait(t, id); out != "bye\n" || ws.ExitStatus() != 3 {
			t.Errorf("got %q and status %v, want the task to end by itself", out, ws)
		}
		if last := s.last(t); last.Error != "told to stop" {
			t.Errorf("got %+v, want the reason", last)
		}
	})
	t.Run("by a signal", func(t *testing.T) {
		s := open(t, w, w.Dir(t, "signalled"), strict, "hold")
		_ = s.cmd.Process.Signal(unix.SIGTERM)
		if last := s.last(t); unix.WaitStatus(last.Status).Signal() != unix.SIGTERM {
			t.Errorf("got %+v, want SIGTERM", last)
		}
	})
}

// TestWithoutStarter: a filter that leaves no room for the starter still runs
// the command, and says why nothing else can be started.
func TestWithoutStarter(t *testing.T) {
	w := wraptest.New(t)
	dir := w.Dir(t, "work")
	s := open(t, w, dir, strict+"syscalls: {deny: [setsid]}\n", "run", "sleep", "600")
	a := s.ask(t, wire.Request{Op: "start", Argv: []string{"true"}})
	if !strings.Contains(a.Error, "setsid, which syscalls.deny refuses") {
		t.Errorf("got %+v, want the reason", a)
	}
	s.ask(t, wire.Request{Op: "end"})
	if last := s.last(t); last.Error != "" {
		t.Errorf("got %+v, want it to have run", last)
	}
}

// TestWithoutNamespaces: tasks are started in the weaker tier too, confined like
// the command; what would need namespaces says so.
func TestWithoutNamespaces(t *testing.T) {
	w := wraptest.New(t)
	dir := w.Dir(t, "work")
	w.Write(t, filepath.Join(w.Home, "secret"), "the secret\n")
	refuse := filepath.Join(w.Home, "refuse")
	w.Write(t, refuse, "#!/bin/sh\necho 0 > /proc/sys/user/max_user_namespaces || exit 99\nexec \"$@\"\n")
	if err := os.Chmod(refuse, 0o755); err != nil {
		t.Fatal(err)
	}
	below := []string{"unshare", "-U", "--map-current-user", "--keep-caps", refuse}
	const weak = `version: 1
name: weak
extends: []
require: {may_degrade: [namespaces, capture]}
workspace: {path: ., access: write, exec: true}
env: {allow: [PATH]}
filesystem:
  exec: [/usr, /bin, /sbin, /lib, "/lib64?"]
  read: ["/etc/ld.so.cache?"]
  home: private
`
	s := openBelow(t, w, dir, below, weak, "run", "sh", "-c",
		"trap 'kill -USR2 $(cat task)' USR1; env | sort > env; grep Seccomp /proc/self/status > status; echo $$ > command; while :; do sleep 0.05; done")
	waitFile(t, filepath.Join(dir, "command"))
	out, ws := s.sh(t, "env | sort; grep Seccomp /proc/self/status")
	if want := read(t, filepath.Join(dir, "env")) + read(t, filepath.Join(dir, "status")); out != want || ws != 0 {
		t.Errorf("got %q, want %q", out, want)
	}
	if out, ws = s.sh(t, "LC_ALL=C cat "+w.Home+"/secret"); ws == 0 || !strings.Contains(out, "Permission denied") {
		t.Errorf("got %q and status %v, want the secret denied", out, ws)
	}
	if out, ws = s.sh(t, "trap 'exit 42' USR2; echo $$ > task; kill -USR1 $(cat command); while :; do sleep 0.05; done"); ws.ExitStatus() != 42 {
		t.Errorf("got exit %d and %q, want the command's answer", ws.ExitStatus(), out)
	}
	if out, ws = s.wait(t, s.start(t, wire.Request{Argv: []string{"sh", "-c", "stty size < /dev/tty"}, Terminal: true})); out != "33 77\r\n" {
		t.Errorf("got %q and status %v, want a terminal", out, ws)
	}
	for _, q := range []wire.Request{{Op: "pause"}, {Op: "resume"}, {Op: "dial", Path: "tcp:1"}, {Op: "listen", Path: "unix:/tmp/x"}} {
		if a := s.ask(t, q); !strings.Contains(a.Error, "needs namespaces") {
			t.Errorf("%s: got %+v, want an error that names namespaces", q.Op, a)
		}
	}
	id := s.start(t, wire.Request{Argv: []string{"sleep", "600"}})
	s.ask(t, wire.Request{Op: "signal", Task: id, Signal: int(unix.SIGKILL)})
	if _, ws := s.wait(t, id); ws.Signal() != unix.SIGKILL {
		t.Errorf("got status %v, want SIGKILL", ws)
	}
	s.ask(t, wire.Request{Op: "end", Signal: 4 << 8})
	if last := s.last(t); unix.WaitStatus(last.Status).ExitStatus() != 4 {
		t.Errorf("got %+v, want exit 4", last)
	}
}

// TestKilledTogether: a command that is killed with everything else ends the run
// by its own status.
func TestKilledTogether(t *testing.T) {
	w := wraptest.New(t)
	s := open(t, w, w.Dir(t, "work"), strict, "run", "sleep", "600")
	// The run may end before the answer is out.
	s.ask(t, wire.Request{Op: "start", Argv: []string{"sh", "-c", "kill -9 -1"}})
	if last := s.last(t); unix.WaitStatus(last.Status).Signal() != unix.SIGKILL || last.Error != "" {
		t.Errorf("got %+v, want SIGKILL of the command", last)
	}
}

// limit bounds everything that is waited for.
const limit = 60 * time.Second

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

func waitFile(t *testing.T, path string) {
	t.Helper()
	until(t, path+" appears", func() bool {
		st, err := os.Stat(path)
		return err == nil && (st.Size() > 0 || filepath.Base(path) == "up")
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
