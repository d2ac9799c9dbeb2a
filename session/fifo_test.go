package session

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A FIFO in the place of a record holds nobody up.
func TestFIFOIsNoRecord(t *testing.T) {
	home := t.TempDir()
	dir := Dir(home, "s")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{recordName, holderName} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := read(dir); err == nil {
			t.Error("read a record from a FIFO, want an error")
		}
		if err := waitHolder(dir, "s"); err == nil {
			t.Error("read a holder from a FIFO, want an error")
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for somebody to write to a FIFO")
	}
}
