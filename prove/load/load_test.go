package load

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a run leaves is found when its parent is gone and it is in a session of its
// own, and no more once it has ended.
func TestLeftFindsOrphans(t *testing.T) {
	end, err := adopt()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	y := &yard{dir: t.TempDir(), runtime: t.TempDir()}
	if left := y.left(); len(left) > 0 {
		t.Fatalf("at first: got %q, want nothing", left)
	}
	if err := exec.Command("sh", "-c", "exec 1>&- 2>&-; setsid sh -c 'sleep 4242 & :' & wait").Run(); err != nil {
		t.Fatal(err)
	}
	left := y.left()
	for over := time.Now().Add(10 * time.Second); len(left) == 1 && strings.HasSuffix(left[0], ":"); left = y.left() { // not executed yet
		if time.Now().After(over) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if len(left) != 1 || !strings.HasSuffix(left[0], " sleep 4242") {
		t.Errorf("got %q, want the orphan", left)
	}
	for _, pid := range descendants(unix.Getpid()) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	for over := time.Now().Add(10 * time.Second); len(left) > 0; left = y.left() {
		if time.Now().After(over) {
			t.Fatalf("at last: got %q, want nothing", left)
		}
		time.Sleep(time.Millisecond)
	}
}
