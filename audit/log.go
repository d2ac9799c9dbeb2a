package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// The rate at which events are written once the burst is used up. First
// occurrences are written always, up to maxSeen of them.
const (
	ratePerSecond = 500
	rateBurst     = 10_000
	maxSeen       = 4096
)

// maxField bounds each text in an event (bytes), so that a line stays far
// below what one write(2) takes.
const maxField = 2048

// Log is an open record. It is safe for use by several goroutines, and several
// processes may hold Logs on the same file. The zero value and nil refuse:
// Write reports an error.
type Log struct {
	// Now gives the time; nil is time.Now. Set it before the first Write.
	Now func() time.Time

	file *os.File
	run  string

	mu      sync.Mutex
	tokens  float64
	filled  time.Time
	seen    map[seenKey]struct{}
	dropped int64
	torn    bool
}

// seenKey is what makes two events the same for the rate limit.
type seenKey struct {
	kind    Kind
	verdict Verdict
	host    string
	rule    string
	reason  string
}

// Open opens the record at path, made if it does not exist, for the run named.
// It refuses symbolic links and everything that is not a regular file.
func Open(path, run string) (*Log, error) {
	// O_NONBLOCK keeps open(2) from hanging on a FIFO that stands there.
	flags := unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := unix.Open(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open audit file %q: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	l, err := New(f, run)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return l, nil
}

// New makes a Log of an open descriptor, such as one that another process
// handed over. The descriptor must be a regular file in append mode. The Log
// owns it from then on.
func New(f *os.File, run string) (*Log, error) {
	if f == nil {
		return nil, errors.New("use audit file: no descriptor")
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("use audit file %q: %w", f.Name(), err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("use audit file %q: not a regular file", f.Name())
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("use audit file %q: %w", f.Name(), err)
	}
	if flags&unix.O_APPEND == 0 {
		return nil, fmt.Errorf("use audit file %q: not open for appending", f.Name())
	}
	return &Log{file: f, run: run, tokens: rateBurst, seen: map[seenKey]struct{}{}}, nil
}

// File is the descriptor, for handing it to another process. The Log keeps it.
func (l *Log) File() *os.File { return l.file }

// Run is the identifier of the run.
func (l *Log) Run() string { return l.run }

// Write records an event. An error means that it is not in the record: whoever
// must have one stops then. An event that the rate limit leaves out is no
// error; the next event that is written is preceded by a KindDropped one with
// their number.
func (l *Log) Write(e Event) error {
	if l == nil || l.file == nil {
		return errors.New("write audit event: no audit file")
	}
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	if e.Time.IsZero() {
		e.Time = now()
	}
	if e.Run == "" {
		e.Run = l.run
	}
	dropped, ok := l.admit(e)
	if !ok {
		return nil
	}
	line, err := encode(e)
	if err != nil {
		return fmt.Errorf("write audit event: %w", err)
	}
	if dropped > 0 {
		head, err := encode(Event{
			Time: e.Time, Run: e.Run, Kind: KindDropped, Count: dropped,
			Reason: "too many events at once; these were left out",
		})
		if err != nil {
			return fmt.Errorf("write audit event: %w", err)
		}
		line = append(head, line...)
	}
	return l.put(line)
}

// Close writes the number of events left out, if any, and closes the file.
func (l *Log) Close() error {
	if l == nil || l.file == nil {
		return nil
	}
	l.mu.Lock()
	dropped := l.dropped
	l.dropped = 0
	l.mu.Unlock()
	var err error
	if dropped > 0 {
		var line []byte
		line, err = encode(Event{
			Time: time.Now(), Run: l.run, Kind: KindDropped, Count: dropped,
			Reason: "too many events at once; these were left out",
		})
		if err == nil {
			err = l.put(line)
		}
	}
	return errors.Join(err, l.file.Close())
}

// admit decides whether the rate limit lets the event through, and takes over
// the count of those left out before it.
func (l *Log) admit(e Event) (dropped int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.filled.IsZero() || e.Time.Before(l.filled) {
		l.filled = e.Time
	}
	l.tokens = min(rateBurst, l.tokens+e.Time.Sub(l.filled).Seconds()*ratePerSecond)
	l.filled = e.Time
	first := l.lockedFirst(seenKey{e.Kind, e.Verdict, e.Host, e.Rule, e.Reason})
	switch {
	case l.tokens >= 1:
		l.tokens--
	case !first && e.Kind != KindLaunch && e.Kind != KindExit:
		l.dropped++
		return 0, false
	}
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

func (l *Log) lockedFirst(k seenKey) bool {
	if _, known := l.seen[k]; known || len(l.seen) >= maxSeen {
		return false
	}
	l.seen[k] = struct{}{}
	return true
}

// put writes whole lines with one write(2). After a write that ended midway
// (a full disk) the next one starts on a fresh line.
func (l *Log) put(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := l.file.Write(line)
	if err != nil {
		l.torn = n > 0 || l.torn
		return fmt.Errorf("write audit file %q: %w", l.file.Name(), err)
	}
	l.torn = false
	return nil
}

// encode gives the event as one line.
func encode(e Event) ([]byte, error) {
	for _, s := range []*string{
		&e.Run, &e.ID, &e.Host, &e.Addr, &e.Protocol, &e.Method, &e.Path, &e.Rule,
		&e.Pos, &e.Reason, &e.Policy, &e.Source, &e.Digest, &e.Version, &e.Command,
	} {
		*s = shorten(*s)
	}
	e.Time = e.Time.UTC()
	b, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return append(escape(b), '\n'), nil
}

func shorten(s string) string {
	if len(s) <= maxField {
		return s
	}
	cut := maxField
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
