package audit

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// maxField bounds each text in an event (bytes), so that a line stays far
// below what one write(2) takes.
const maxField = 2048

// How often a chain says how far it has come.
const (
	checkpointLines = 1024
	checkpointTime  = time.Minute
)

// Log is an open record. It is safe for use by several goroutines, and several
// processes may hold Logs on the same file. The zero value and nil refuse:
// Write reports an error.
type Log struct {
	// Now gives the time; nil is time.Now. Set it before the first Write.
	Now func() time.Time
	// Version is that of the program, for the lines. Set it before the first Write.
	Version string
	// Number is the run's among those of the record (see NumberRun); 0: none is
	// given. Set it before Sign.
	Number int64
	// Written is told the number of each line that was written; it must not wait.
	// Nil: nobody is. Set it before Sign.
	Written func(sequence uint64)

	run    string
	hidden atomic.Pointer[hider]

	mu       sync.Mutex
	file     *os.File
	fd       int
	closed   bool
	torn     bool
	limit    limit
	writer   string
	chain    *chain // nil: the lines carry no codes
	sequence uint64 // of the last line
	marked   uint64 // the last checkpoint
	markedAt time.Time
	buf      []byte
}

// Open opens the record at path, made if it does not exist, for the run named.
// It refuses symbolic links and everything that is not a regular file.
func Open(path, run string) (*Log, error) {
	f, err := openAppend(path)
	if err != nil {
		return nil, err
	}
	l, err := New(f, run)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return l, nil
}

func openAppend(path string) (*os.File, error) {
	// O_NONBLOCK keeps open(2) from hanging on a FIFO that stands there.
	flags := unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := unix.Open(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open audit file %q: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// New makes a Log of an open descriptor, such as one that another process
// handed over. The descriptor must be a regular file in append mode. The Log
// owns it from then on.
func New(f *os.File, run string) (*Log, error) {
	if err := usable(f); err != nil {
		return nil, err
	}
	return &Log{file: f, fd: int(f.Fd()), run: run, limit: limit{tokens: rateBurst, seen: map[seenKey]struct{}{}}}, nil
}

func usable(f *os.File) error {
	if f == nil {
		return errors.New("use audit file: no descriptor")
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("use audit file %q: %w", f.Name(), err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("use audit file %q: not a regular file", f.Name())
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("use audit file %q: %w", f.Name(), err)
	}
	if flags&unix.O_APPEND == 0 {
		return fmt.Errorf("use audit file %q: not open for appending", f.Name())
	}
	return nil
}

// Sign begins the writer's chain: from now on every line carries its number,
// the code of the line before and its own. It is called once, before the first
// Write.
func (l *Log) Sign(writer string, key ChainKey) error {
	l.mu.Lock()
	l.writer, l.chain = writer, newChain(key)
	l.mu.Unlock()
	return l.Write(Event{Kind: KindOpen, Count: l.Number})
}

// File is the descriptor, for handing it to another process. The Log keeps it.
func (l *Log) File() *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file
}

// Run is the identifier of the run.
func (l *Log) Run() string { return l.run }

// Write records an event. An error means that it is not in the record: whoever
// must have one stops then. An event that the rate limit leaves out is no
// error; the next event that is written is preceded by a KindDropped one with
// their number.
func (l *Log) Write(e Event) error {
	if l == nil {
		return errors.New("write audit event: no audit file")
	}
	l.hidden.Load().clean(&e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil || l.closed {
		return errors.New("write audit event: no audit file")
	}
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	if !l.limit.admit(&e) {
		return nil
	}
	if err := l.lockedDropped(e.Time); err != nil {
		return l.lockedLost(err)
	}
	if err := l.lockedPut(&e); err != nil {
		return l.lockedLost(err)
	}
	l.lockedCheckpoint(e.Time)
	return nil
}

// lockedLost counts an event that could not be written, so that the record says
// so once it can be written again.
func (l *Log) lockedLost(err error) error {
	l.limit.dropped++
	return err
}

func (l *Log) now() time.Time {
	if l.Now != nil {
		return l.Now()
	}
	return time.Now()
}

// lockedDropped says how many events are missing, if any are.
func (l *Log) lockedDropped(at time.Time) error {
	if l.limit.dropped == 0 {
		return nil
	}
	err := l.lockedPut(&Event{Time: at, Kind: KindDropped, Count: l.limit.dropped, Reason: "these events were left out: too many at once, or the file could not be written"})
	if err == nil {
		l.limit.dropped = 0
	}
	return err
}

// lockedCheckpoint says how far the chain has come, when it is time. One that
// cannot be written is tried again with the next event.
func (l *Log) lockedCheckpoint(at time.Time) {
	if l.chain == nil {
		return
	}
	if l.markedAt.IsZero() {
		l.markedAt = at
	}
	if l.sequence-l.marked < checkpointLines && at.Sub(l.markedAt) < checkpointTime {
		return
	}
	if l.lockedPut(l.lockedHead(KindCheckpoint, at)) == nil {
		l.marked, l.markedAt = l.sequence, at
	}
}

// lockedHead is an event with the number of lines and the code of the last.
func (l *Log) lockedHead(kind Kind, at time.Time) *Event {
	return &Event{Time: at, Kind: kind, Count: int64(l.sequence), Digest: string(l.chain.prev[:])}
}

// lockedPut writes one line with one write(2). After a write that ended midway
// (a full disk) the next one starts on a fresh line, with the same number.
func (l *Log) lockedPut(e *Event) error {
	e.Run, e.Writer, e.Sequence, e.Time = l.run, l.writer, l.sequence+1, e.Time.UTC()
	b := l.buf[:0]
	if l.torn {
		b = append(b, '\n')
	}
	start := len(b)
	b = appendEvent(b, e, l.Version)
	var code [64]byte
	if l.chain != nil {
		line := b[start:]
		line, code = l.chain.seal(line, e.Sequence)
		b = append(b[:start], line...)
	} else {
		b = append(b, "}}"...)
	}
	b = append(b, '\n')
	l.buf = b
	if err := l.lockedWrite(b); err != nil {
		return err
	}
	l.sequence = e.Sequence
	if l.Written != nil {
		l.Written(l.sequence)
	}
	if l.chain != nil {
		l.chain.prev = code
	}
	return nil
}

func (l *Log) lockedWrite(b []byte) error {
	for {
		n, err := unix.Write(l.fd, b)
		switch {
		case n == len(b):
			l.torn = false
			return nil
		case err == unix.EINTR && n <= 0:
			continue
		case err == nil:
			// What remains could come to stand behind another writer's line.
			err = unix.ENOSPC
		}
		l.torn = n > 0 || l.torn
		return fmt.Errorf("write audit file %q: %w", l.file.Name(), err)
	}
}

// Close writes the number of events left out, if any, says that the chain ends
// here, and closes the file. The others named also wrote to the record in this
// run: their chains must be there.
func (l *Log) Close(others ...string) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil || l.closed {
		return nil
	}
	l.closed = true
	at := l.now()
	err := l.lockedDropped(at)
	if l.chain != nil && err == nil {
		end := l.lockedHead(KindEnd, at)
		end.Writers = others
		err = l.lockedPut(end)
	}
	return errors.Join(err, l.file.Close())
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
