package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTestControl serves a control socket that answers with what was asked.
func openTestControl(t *testing.T) (c *control, dir string) {
	t.Helper()
	dir = t.TempDir()
	// The test itself asks; a sandbox's command is a child of the launcher, as
	// this process would be of itself.
	mine := func(who unix.Ucred) bool { return int(who.Uid) == os.Geteuid() }
	c, err := openControl(dir, mine, func(q controlRequest) controlAnswer { return controlAnswer{Run: "test", Error: "op " + q.Op} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.close()
		c.wg.Wait()
	})
	return c, dir
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
		{"no JSON", "hello", "decode the request"},
		{"nothing", `{}`, `"error":"op "`},
		{"an unknown field", `{"op":"status","uid":0}`, "unknown field"},
		{"two objects", `{"op":"status"}{"op":"reload"}`, "data after the end"},
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

// A peer that asks nothing holds one place, and not the others.
func TestControlPeersAreBounded(t *testing.T) {
	_, dir := openTestControl(t)
	var silent []net.Conn
	for range controlOpen - 1 {
		c, err := net.Dial("unixpacket", filepath.Join(dir, controlName))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	if a, err := askRun(dir, controlRequest{Op: "x"}, 5*time.Second); err != nil || a.Error != "op x" {
		t.Errorf("beside %d silent peers: got %+v, %v, want an answer", len(silent), a, err)
	}
	for range 4 {
		c, err := net.Dial("unixpacket", filepath.Join(dir, controlName))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if _, err := askRun(dir, controlRequest{Op: "x"}, 5*time.Second); err == nil {
		t.Error("beyond all places: got an answer, want none")
	}
	for _, c := range silent {
		_ = c.Close()
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if a, err := askRun(dir, controlRequest{Op: "x"}, 5*time.Second); err == nil && a.Error == "op x" {
			return
		}
		if time.Now().After(end) {
			t.Fatal("after the others left: got no answer, want one")
		}
	}
}

func TestControlSocketWithALongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := openControl(dir, anybody, func(controlRequest) controlAnswer { return controlAnswer{Run: "long"} })
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if a, err := askRun(dir, controlRequest{Op: opStatus}, 5*time.Second); err != nil || a.Run != "long" {
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
			ctl, err := openControl(dir, allowed, func(controlRequest) controlAnswer { asked++; return controlAnswer{Run: "mine"} })
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

func TestFindRun(t *testing.T) {
	base := t.TempDir()
	for i, id := range []string{"aa11", "aa22", "bb33"} {
		dir := filepath.Join(base, id)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c, err := openControl(dir, anybody, func(controlRequest) controlAnswer {
			return controlAnswer{Run: id, Status: &runStatus{Command: "sh", Policy: fmt.Sprintf("p%d", i)}}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.close)
	}
	// What a killed run left, and what is no run at all.
	stale, err := listenPrivate(mkdir(t, base, "dead"), controlName, unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	stale.Close()
	mkdir(t, base, "empty")
	for _, c := range []struct{ name, want, err string }{
		{"bb", "bb33", ""},
		{"aa22", "aa22", ""},
		{"aa", "", "several runs are live; name one:\naa11  sh, policy p0"},
		{"", "", "several runs are live"},
		{"dead", "", `no run "dead" of yours is live`},
		{"empty", "", `no run "empty" of yours is live`},
		{"../x", "../x", ""},
	} {
		got, err := findRun(base, c.name)
		if c.err == "" && (err != nil || filepath.Base(got) != filepath.Base(c.want)) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: got %q, %v, want %q, %q", c.name, got, err, c.want, c.err)
		}
	}
}

func mkdir(t *testing.T, base, name string) string {
	t.Helper()
	dir := filepath.Join(base, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
