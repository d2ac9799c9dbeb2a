package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/session"
)

// openTestControl serves a control socket that answers with what was asked.
func openTestControl(t *testing.T) (c *control, dir string) {
	t.Helper()
	dir = t.TempDir()
	// The test itself asks; a sandbox's command is a child of the launcher, as
	// this process would be of itself.
	mine := func(who unix.Ucred) bool { return int(who.Uid) == os.Geteuid() }
	c, err := openControl(dir, mine, says(func(q controlRequest) controlAnswer { return controlAnswer{Run: "test", Error: "op " + q.Op} }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.close()
		c.wg.Wait()
	})
	return c, dir
}

// says answers every peer with what do says.
func says(do func(controlRequest) controlAnswer) func(*peer, controlRequest, []*os.File) {
	return func(p *peer, q controlRequest, files []*os.File) {
		closeFiles(files)
		_ = p.send(do(q))
	}
}

// askDir asks the run in a directory.
func askDir(dir string, q controlRequest, wait time.Duration) (controlAnswer, error) {
	return askRun(session.Entry{Record: session.Record{RunDir: dir}}, q, wait)
}

func anybody(unix.Ucred) bool { return true }

func TestControlSocketIsTheUsersAlone(t *testing.T) {
	_, dir := openTestControl(t)
	info, err := os.Stat(filepath.Join(dir, controlName))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode(); got != os.ModeSocket|0o600 {
		t.Errorf("mode: got %v, want a socket with 0600", got)
	}
}

func TestControlRequests(t *testing.T) {
	cases := []struct{ name, packet, want string }{
		{"control: an operation", `{"op":"status"}`, `"error":"op status"`},
		{"no JSON", "hello", "decode the packet"},
		{"nothing", `{}`, `"error":"op "`},
		{"an unknown field", `{"op":"status","uid":0}`, "unknown field"},
		{"two objects", `{"op":"status"}{"op":"reload"}`, "data after the end"},
		{"a bracket too many", `{"op":"status"}]`, "data after the end"},
		{"too long", `{"op":"` + strings.Repeat("x", controlBytes) + `"}`, "too long"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, dir := openTestControl(t)
			conn, err := net.Dial("unixpacket", filepath.Join(dir, controlName))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			if _, err := conn.Write([]byte(c.packet)); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, controlBytes)
			n, err := conn.Read(b)
			if err != nil || !strings.Contains(string(b[:n]), c.want) {
				t.Errorf("got %s (%v), want %q in it", b[:n], err, c.want)
			}
		})
	}
}

// descriptors counts those of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Peers that ask nothing keep nobody out and cost a bounded number of places.
func TestControlPeersAreBounded(t *testing.T) {
	_, dir := openTestControl(t)
	before := descriptors(t)
	const many = 1000
	var silent []net.Conn
	for len(silent) < many {
		c, err := net.Dial("unixpacket", filepath.Join(dir, controlName))
		if errors.Is(err, unix.EAGAIN) {
			time.Sleep(time.Millisecond) // the queue is full for a moment
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
		if len(silent)%100 == 0 {
			if a, err := askDir(dir, controlRequest{Op: "x"}, 20*time.Second); err != nil || a.Error != "op x" {
				t.Fatalf("beside %d silent peers: got %+v, %v, want an answer", len(silent), a, err)
			}
		}
	}
	// Each end is a descriptor of this process; those that the socket keeps are few.
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		kept := descriptors(t) - before - many
		if kept <= controlWaiting+1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("got %d places taken by %d silent peers, want at most %d", kept, many, controlWaiting)
		}
	}
}

// Packets that are none of ours, with descriptors nobody asked for, leave nothing
// behind and keep nobody out.
func TestControlSurvivesGarbage(t *testing.T) {
	_, dir := openTestControl(t)
	before := descriptors(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	random := rand.NewChaCha8([32]byte{})
	for i := range 1000 {
		p, err := dialRun(session.Entry{Record: session.Record{RunDir: dir}}, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		garbage := make([]byte, 1+i%300)
		_, _ = random.Read(garbage)
		var rights []byte
		if i%2 == 0 {
			fds := make([]int, 1+i%5)
			for j := range fds {
				fds[j] = int(null.Fd())
			}
			rights = unix.UnixRights(fds...)
		}
		if i%3 == 0 {
			garbage = []byte(`{"op":"exec","exec":{"argv":["sh"],"streams":[0,0,9]}}`)
		}
		_, _, _ = p.conn.WriteMsgUnix(garbage, rights, nil)
		p.close()
	}
	if a, err := askDir(dir, controlRequest{Op: "x"}, 20*time.Second); err != nil || a.Error != "op x" {
		t.Fatalf("after it: got %+v, %v, want an answer", a, err)
	}
	for end := time.Now().Add(30 * time.Second); descriptors(t) > before+2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got %d descriptors, want the %d from before", descriptors(t), before)
		}
	}
}

// Connections that go on have places of their own, and a bound.
func TestControlLastingPeersAreBounded(t *testing.T) {
	dir := t.TempDir()
	over := make(chan struct{})
	c, err := openControl(dir, anybody, func(p *peer, q controlRequest, files []*os.File) {
		closeFiles(files)
		_ = p.send(controlAnswer{Run: "r"})
		if q.lasting() {
			<-over
			_ = p.send(controlAnswer{Run: "r", Exit: &controlExit{Code: 7}})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	e := session.Entry{Record: session.Record{RunDir: dir}}
	var held []*peer
	for range controlLasting {
		p, err := dialRun(e, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		if a, _, err := p.ask(controlRequest{Op: opExec}, 20*time.Second); err != nil || a.Error != "" {
			t.Fatalf("number %d: got %+v, %v, want it to go on", len(held), a, err)
		}
		held = append(held, p)
	}
	if a, err := askRun(e, controlRequest{Op: opExec}, 20*time.Second); err != nil || a.Error != "too many at once" {
		t.Errorf("one more: got %+v, %v, want it refused", a, err)
	}
	if a, err := askRun(e, controlRequest{Op: opStatus}, 20*time.Second); err != nil || a.Error != "" {
		t.Errorf("a short one: got %+v, %v, want an answer", a, err)
	}
	// The end of the socket is not the end of theirs: they hear how it went.
	c.close()
	close(over)
	for _, p := range held {
		var a controlAnswer
		if _, err := p.receive(&a, 20*time.Second); err != nil || a.Exit == nil || a.Exit.Code != 7 {
			t.Errorf("got %+v, %v, want the exit", a, err)
		}
	}
	c.wg.Wait()
}

func TestControlSocketWithALongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := openControl(dir, anybody, says(func(controlRequest) controlAnswer { return controlAnswer{Run: "long"} }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if a, err := askDir(dir, controlRequest{Op: opStatus}, 5*time.Second); err != nil || a.Run != "long" {
		t.Errorf("got %+v, %v, want an answer", a, err)
	}
}

// Who is inside must not control the run, also where a policy lets the command
// see the same files as the same user.
func TestControlRefusesTheRunsOwnChildren(t *testing.T) {
	me := unix.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Geteuid())}
	parent := unix.Ucred{Pid: int32(os.Getppid()), Uid: uint32(os.Geteuid())}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	for _, c := range []struct {
		name string
		who  unix.Ucred
		want bool
	}{
		{"control: the parent of the launcher", parent, true},
		{"root, from elsewhere", unix.Ucred{Pid: int32(os.Getppid())}, true},
		{"another user", unix.Ucred{Pid: int32(os.Getppid()), Uid: uint32(os.Geteuid()) + 1}, false},
		{"the launcher itself", me, false},
		{"a child", unix.Ucred{Pid: int32(child.Process.Pid), Uid: uint32(os.Geteuid())}, false},
		{"a child that is root", unix.Ucred{Pid: int32(child.Process.Pid)}, false},
		{"a process of another namespace", unix.Ucred{Uid: uint32(os.Geteuid())}, false},
		{"a process that is gone", unix.Ucred{Pid: 1 << 30, Uid: uint32(os.Geteuid())}, false},
	} {
		if got := mayControl(c.who); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestParseParent(t *testing.T) {
	for _, c := range []struct {
		stat string
		want int
		ok   bool
	}{
		{"12 (sh) S 7 12 12 0", 7, true},
		{"12 (a) S 1) R 9 (x) S 8 12", 8, true},
		{"12 sh S 7", 0, false},
		{"12 (sh) S", 0, false},
	} {
		got, err := parseParent(c.stat)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: got %d, %v, want %d", c.stat, got, err, c.want)
		}
	}
}

// askAs asks a control socket as another user, from another process.
func askAs(t *testing.T, uid uint32, path string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The other user may not read the directory that the test was built in.
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "hermes-ask-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program := filepath.Join(dir, "ask")
	if err := os.WriteFile(program, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=^TestAskAsAnother$", "-test.v")
	cmd.Env = []string{"HERMES_ASK=" + path}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("ask as %d: %v\n%s", uid, err, out.String())
	}
	return out.String()
}

// TestAskAsAnother is the other process of askAs.
func TestAskAsAnother(t *testing.T) {
	path := os.Getenv("HERMES_ASK")
	if path == "" {
		return
	}
	conn, err := net.Dial("unixpacket", path)
	if err != nil {
		t.Log("asked: ", err)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	b, err := json.Marshal(controlRequest{Op: opReload})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write(b)
	n, err := conn.Read(make([]byte, controlBytes))
	t.Logf("asked: got %d bytes, %v", n, err)
}

// The kernel says who connects. Even a socket that lies open for everybody
// answers nobody else; root is let in to every user's.
func TestRootControlKnowsItsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test is root's")
	}
	const nobody = 65534
	for _, c := range []struct {
		name   string
		mode   os.FileMode
		uid    uint32
		answer bool
	}{
		{"control: root asks", 0o600, 0, true},
		{"another user, by the mode", 0o600, nobody, false},
		{"another user, the mode lifted", 0o666, nobody, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/tmp", "hermes-control-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			asked := 0
			// The process that asks is this one's child; that is not at issue here.
			allowed := func(who unix.Ucred) bool {
				who.Pid = int32(os.Getppid())
				return mayControl(who)
			}
			ctl, err := openControl(dir, allowed, says(func(controlRequest) controlAnswer { asked++; return controlAnswer{Run: "mine"} }))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, controlName)
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			out := askAs(t, c.uid, path)
			ctl.close()
			ctl.wg.Wait()
			if got := asked == 1; got != c.answer {
				t.Errorf("answered: got %v, want %v\n%s", got, c.answer, out)
			}
		})
	}
}

func TestFindSession(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	for i, name := range []string{"aa-one", "aa-two", "bb", "over"} {
		s, err := session.Take(home, name)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r := session.Record{Run: fmt.Sprintf("%d0f", i), Command: "sh", Policy: fmt.Sprintf("p%d", i), Started: time.Now()}
		if name == "over" {
			r.Ended, r.ExitCode = time.Now(), new(int)
		}
		if err := s.Write(r); err != nil {
			t.Fatal(err)
		}
		if name == "over" {
			s.Close()
		}
	}
	for _, c := range []struct{ name, want, err string }{
		{"bb", "bb", ""},
		{"b", "bb", ""},
		{"aa-two", "aa-two", ""},
		{"20f", "bb", ""},
		{"aa", "", "several runs are live; name one:\n"},
		{"", "", "several runs are live"},
		{"over", "", `session "over" does not run: it ended 0s ago with exit code 0`},
		{"ov", "", `no session "ov"`},
		{"no", "", `no session "no"`},
		{"../x", "../x", ""},
	} {
		got, err := liveSession([]string{c.name})
		if c.err == "" && (err != nil || got.Name != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: got %q, %v, want %q, %q", c.name, got.Name, err, c.want, c.err)
		}
	}
}
