package state

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A FIFO in the place of a snapshot's record holds nobody up.
func TestFIFOIsNoSnapshot(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "first"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "first", snapshotName), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := Snapshots{Dir: dir}.List()
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("read a snapshot from a FIFO, want an error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for somebody to write to a FIFO")
	}
}
