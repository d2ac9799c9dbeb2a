package main

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// taking is a log and a viewer that keeps what it gets.
type taking struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *taking) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(b)
}

func (t *taking) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

func openTestScreen(t *testing.T) (*screen, *taking) {
	t.Helper()
	log := &taking{}
	s, err := openScreen(log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s, log
}

func awaitTrue(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after 30 s", what)
		}
	}
}

// A viewer that comes later gets what was shown last, from the beginning of a
// line; one that stops reading holds up neither the run nor the others.
func TestScreenReplaysAndNeverWaits(t *testing.T) {
	s, log := openTestScreen(t)
	line := strings.Repeat("x", 98) + "\n"
	const lines = 3 * screenRoom / 99
	stuck, err := s.enter(false)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe() // nobody reads it yet
	stuckDone := make(chan error, 1)
	go func() { stuckDone <- s.serve(stuck, w) }()
	for range lines {
		if _, err := s.slave.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.slave.WriteString("LAST\n"); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "the log has everything", func() bool { return strings.HasSuffix(log.String(), "LAST\r\n") })
	if got := strings.Count(log.String(), "\n"); got != lines+1 {
		t.Errorf("log: got %d lines, want %d", got, lines+1)
	}
	late, err := s.enter(false)
	if err != nil {
		t.Fatal(err)
	}
	view := &taking{}
	lateDone := make(chan error, 1)
	go func() { lateDone <- s.serve(late, view) }()
	awaitTrue(t, "the late one sees the end", func() bool { return strings.HasSuffix(view.String(), "LAST\r\n") })
	if got := view.String(); len(got) > screenRoom || len(got) < screenRoom-200 || !strings.HasPrefix(got, "xxx") || strings.Contains(got, "skipped") {
		t.Errorf("late: got %d bytes from %q, want the last %d from a line's beginning", len(got), got[:20], screenRoom)
	}
	if s.viewers() != 2 {
		t.Errorf("got %d viewers, want 2", s.viewers())
	}
	s.leave(late)
	s.leave(late)
	if err := <-lateDone; err != nil || s.viewers() != 1 {
		t.Errorf("left: got %v and %d viewers, want it to end and 1", err, s.viewers())
	}
	// The one that was stuck is told that it missed something.
	seen := &taking{}
	go func() { _, _ = io.Copy(seen, r) }()
	awaitTrue(t, "the stuck one sees the end", func() bool { return strings.HasSuffix(seen.String(), "LAST\r\n") })
	if !strings.Contains(seen.String(), "some output was skipped") {
		t.Error("stuck: got no word of what was skipped")
	}
	s.close()
	if err := <-stuckDone; err != nil {
		t.Errorf("end: got %v, want none", err)
	}
}

func TestScreenHasOneKeyboard(t *testing.T) {
	s, _ := openTestScreen(t)
	first, err := s.enter(true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.enter(true); err == nil {
		t.Error("a second one: got the keyboard, want it refused")
	}
	s.leave(first)
	if _, err := s.enter(true); err != nil {
		t.Errorf("after the first left: got %v, want the keyboard", err)
	}
}

func TestScreenHasASize(t *testing.T) {
	s, _ := openTestScreen(t)
	for _, c := range []struct{ rows, cols uint16 }{{24, 80}, {30, 100}, {30, 100}} {
		s.resize(c.rows, c.cols, true)
		if got, want := s.size(), (unix.Winsize{Row: c.rows, Col: c.cols}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	s.resize(0, 7, false)
	if got := s.size(); got.Row != 30 || got.Col != 100 {
		t.Errorf("no size: got %+v, want the one from before", got)
	}
}
