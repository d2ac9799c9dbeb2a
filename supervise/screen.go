package supervise

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// screenRoom is how much may wait for a screen that does not keep up (bytes).
const screenRoom = 1 << 20

// Screen writes entries to somebody who may not read them, and never makes
// anybody wait: what finds no room is dropped, and their number is shown.
type Screen struct {
	w    io.Writer
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	queue   []string
	size    int
	dropped int
	closed  bool
	err     error
}

// NewScreen begins to show entries.
func NewScreen(w io.Writer) *Screen {
	s := &Screen{w: w, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *Screen) show(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.err != nil {
		return
	}
	if s.dropped > 0 || s.size+len(line) > screenRoom {
		s.dropped++
	} else {
		s.queue = append(s.queue, line)
		s.size += len(line)
	}
	s.lockedWake()
}

func (s *Screen) lockedWake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Screen) run() {
	defer close(s.done)
	for {
		batch, last := s.take()
		for _, line := range batch {
			if _, err := io.WriteString(s.w, line); err != nil {
				s.fail(err)
				return
			}
		}
		if len(batch) == 0 {
			if last {
				return
			}
			<-s.wake
		}
	}
}

// take gives what is to be written, with a word about what is missing behind it.
func (s *Screen) take() (batch []string, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch = s.queue
	if s.dropped > 0 {
		batch = append(batch, fmt.Sprintf("%s hermes-wrap %c %d lines are in the log alone: this reader was too slow\n",
			time.Now().UTC().Format(timeForm), whole, s.dropped))
	}
	s.queue, s.size, s.dropped = nil, 0, 0
	return batch, s.closed
}

func (s *Screen) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.queue = err, nil
}

// Close shows what is left and waits for that until the limit. It gives what
// kept the screen from showing anything more.
func (s *Screen) Close(limit time.Duration) error {
	s.mu.Lock()
	s.closed = true
	s.lockedWake()
	s.mu.Unlock()
	select {
	case <-s.done:
	case <-time.After(limit):
		return fmt.Errorf("write to the standard output: not done after %v", limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
