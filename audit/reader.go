package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxLine bounds what is read as one line (bytes); no line of ours comes near.
const maxLine = 1 << 20

// lineStart is how each line begins. It can stand nowhere else in one: quotation
// marks inside of texts are escaped.
var lineStart = []byte(`{"time":`)

// Reader reads the lines of one file.
type Reader struct {
	f    *os.File
	r    *bufio.Reader
	part []byte // a line whose end is not there yet
	line int
}

// NewReader opens a file of the record. It refuses everything that is not a
// regular file.
func NewReader(path string) (*Reader, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("read audit file: %w", err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, fmt.Errorf("read audit file %q: not a regular file", path)
	}
	return &Reader{f: f, r: bufio.NewReaderSize(f, 64<<10)}, nil
}

// Next gives the next whole line without its end, valid until the next call,
// and its number. At the end of the file it gives io.EOF, and may be called
// again once the file has grown.
func (r *Reader) Next() ([]byte, int, error) {
	for {
		piece, err := r.r.ReadSlice('\n')
		if len(r.part) <= maxLine {
			r.part = append(r.part, piece...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, r.line + 1, err
		}
		line := bytes.TrimSuffix(r.part, []byte("\n"))
		r.part = r.part[:0]
		r.line++
		if len(line) > 0 {
			return line, r.line, nil
		}
	}
}

// Rest gives what stands behind the last whole line.
func (r *Reader) Rest() []byte { return r.part }

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// replaced tells whether path is another file by now.
func (r *Reader) replaced(path string) bool {
	ours, err := r.f.Stat()
	if err != nil {
		return true
	}
	there, err := os.Stat(path)
	return err == nil && !os.SameFile(ours, there)
}

// untorn gives the part of a line that was written last: what stands before it
// is the beginning of a line that a full disk or a crash cut off.
func untorn(line []byte) (whole, torn []byte) {
	at := bytes.LastIndex(line, lineStart)
	if at <= 0 {
		return line, nil
	}
	return line[at:], line[:at]
}

// ReadFile gives the events of one file. Lines that are none of a record are
// left out; Verify reports them.
func ReadFile(path string) ([]Event, error) {
	var all []Event
	err := eachLine(path, func(line []byte, _ int) error {
		if whole, _ := untorn(line); len(whole) > 0 {
			if e, err := Decode(whole); err == nil {
				all = append(all, e)
			}
		}
		return nil
	})
	return all, err
}

// eachLine calls do for each line of a file; a last line without an end is one.
func eachLine(path string, do func(line []byte, number int) error) error {
	r, err := NewReader(path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for {
		line, number, err := r.Next()
		if errors.Is(err, io.EOF) {
			if line = r.Rest(); len(line) == 0 {
				return nil
			}
			return do(line, number)
		}
		if err == nil {
			err = do(line, number)
		}
		if err != nil {
			return err
		}
	}
}

// Tail reads the record at a path, first the files that there are and then what
// comes, also across rotations.
type Tail struct {
	path  string
	files []string
	plain bool
	r     *Reader
}

// NewLines is a Tail for a file with lines of any form.
func NewLines(path string, files []string) *Tail {
	return &Tail{path: path, files: files, plain: true}
}

// NewTail begins with the files given; the last one is the one that grows.
func NewTail(path string, files []string) *Tail { return &Tail{path: path, files: files} }

// Next gives the next line, valid until the next call. It gives io.EOF where
// nothing is there yet; it may be called again later.
func (t *Tail) Next() ([]byte, error) {
	for {
		if t.r == nil {
			if err := t.open(); err != nil {
				return nil, err
			}
		}
		line, _, err := t.r.Next()
		if err == nil {
			return t.whole(line), nil
		}
		if !errors.Is(err, io.EOF) {
			return nil, err
		}
		if len(t.files) == 0 && !t.r.replaced(t.path) {
			return nil, io.EOF
		}
		// Another file is next. A writer that had not noticed yet may have added
		// to this one since the last look.
		if line, _, err := t.r.Next(); err == nil {
			return t.whole(line), nil
		}
		_ = t.r.Close()
		t.r = nil
	}
}

func (t *Tail) whole(line []byte) []byte {
	if t.plain {
		return line
	}
	whole, _ := untorn(line)
	return whole
}

// open goes on to the next file.
func (t *Tail) open() error {
	next := t.path
	if len(t.files) > 0 {
		next, t.files = t.files[0], t.files[1:]
	}
	r, err := NewReader(next)
	if errors.Is(err, os.ErrNotExist) {
		return io.EOF
	}
	t.r = r
	return err
}

// Close closes what is open.
func (t *Tail) Close() error {
	if t.r == nil {
		return nil
	}
	return t.r.Close()
}
