package session

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestTakeWaitsForTheHolder: the lock is free as soon as the launcher is gone,
// and the sandbox may still be ending.
func TestTakeWaitsForTheHolder(t *testing.T) {
	home := t.TempDir()
	s, err := Take(home, "a")
	if err != nil {
		t.Fatal(err)
	}
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer sleeper.Process.Kill()
	if err := s.Hold(sleeper.Process.Pid); err != nil {
		t.Fatal(err)
	}
	_ = s.lock.Close() // as the kernel does for a launcher that was killed
	taken := make(chan error, 1)
	go func() {
		s, err := Take(home, "a")
		if err == nil {
			err = s.Close()
		}
		taken <- err
	}()
	select {
	case err := <-taken:
		t.Fatalf("got %v while the holder runs, want to wait", err)
	case <-time.After(200 * time.Millisecond):
	}
	// A zombie holds nothing: nobody waits for it here until Take is through.
	_ = sleeper.Process.Kill()
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	_ = sleeper.Wait()
	if _, err := os.Stat(filepath.Join(Dir(home, "a"), holderName)); !os.IsNotExist(err) {
		t.Errorf("got %v, want the note to be gone", err)
	}
}

func TestHolderOfAnotherTime(t *testing.T) {
	own, err := identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !held(own) {
		t.Error("control: this process is not found")
	}
	for _, text := range []string{"", "x", own + "0", "1 1 another-boot"} {
		if held(text) {
			t.Errorf("%q: got a holder, want none", text)
		}
	}
}
