package sandbox

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSpawnEndsWithItsParent: a parent that is killed before it lets its child
// go on closes the pipe; a child that held the other end itself waited for ever.
func TestSpawnEndsWithItsParent(t *testing.T) {
	st := start{ruleset: -1, tty: -1, umask: -1, path: "/bin/true", argv: []string{"true"}, cwd: "/", stdio: [3]int{0, 1, 2}}
	r, err := st.spawn()
	if err != nil {
		t.Fatal(err)
	}
	defer r.report.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = unix.Kill(r.pid, unix.SIGKILL) })
	defer late.Stop()
	r.goW.Close()
	var ws unix.WaitStatus
	if _, err := unix.Wait4(r.pid, &ws, 0, nil); err != nil {
		t.Fatal(err)
	}
	if !ws.Exited() || ws.ExitStatus() != 125 {
		t.Errorf("got %v (signal %v), want exit 125", ws.ExitStatus(), ws.Signal())
	}
}
