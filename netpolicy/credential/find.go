package credential

import (
	"errors"
	"fmt"
	"io"
)

// Finding is something that must not leave: of which credential, and whether it
// is the placeholder or the secret itself. It never holds the text.
type Finding struct {
	Credential  string
	Placeholder bool
}

// String says what was found.
func (f Finding) String() string {
	if f.Placeholder {
		return fmt.Sprintf("the placeholder of credential %q", f.Credential)
	}
	return fmt.Sprintf("the secret of credential %q", f.Credential)
}

// Find looks for placeholders and secrets in a text that is to leave.
func (v *Vault) Find(text string) (Finding, bool) {
	return v.FindIn([]byte(text))
}

// FindIn looks for placeholders and secrets in bytes that are to leave.
func (v *Vault) FindIn(b []byte) (Finding, bool) {
	if v.Empty() {
		return Finding{}, false
	}
	now := v.now.Load()
	s := scanner{m: now.leaving}
	hit, ok := s.scan(b)
	return now.finding(now.leaving, hit), ok
}

// FindSecret looks for secrets alone.
func (v *Vault) FindSecret(text string) (Finding, bool) {
	if v.Empty() {
		return Finding{}, false
	}
	now := v.now.Load()
	s := scanner{m: now.coming}
	hit, ok := s.scan([]byte(text))
	return now.finding(now.coming, hit), ok
}

func (s *search) finding(m *machine, hit match) Finding {
	if hit.text < 0 || int(hit.text) >= len(m.owner) {
		return Finding{}
	}
	o := m.owner[hit.text]
	return Finding{Credential: s.names[o], Placeholder: s.shown[o]}
}

// Searched is the error of a body in which something was found. The body never
// ends well then.
type Searched struct{ Finding Finding }

func (e *Searched) Error() string { return "read body: it holds " + e.Finding.String() }

// Leaving gives a body that fails where something is found that must not leave.
// What could be the beginning of it is kept back until it is clear that it is not.
func (v *Vault) Leaving(body io.ReadCloser) io.ReadCloser {
	now := v.now.Load()
	return &filter{src: body, s: scanner{m: now.leaving}, found: func(_ []byte, hit match) error {
		return &Searched{now.finding(now.leaving, hit)}
	}}
}

// filter passes a body on as far as it was searched.
type filter struct {
	src io.ReadCloser
	s   scanner
	// found decides what becomes of a match, which ends where p ends; an error
	// ends the body.
	found func(p []byte, hit match) error

	store []byte // room for buf
	buf   []byte // searched and not yet passed on
	ready int    // of buf: may be passed on
	room  []byte
	err   error
}

// maxHeld bounds what is kept back of a body (bytes): many times what any text
// takes, however it is escaped and wrapped.
const maxHeld = 16 << 10

// ErrHidden ends a body in which the beginning of something is followed by more
// escapes and line ends than anybody writes.
var ErrHidden = errors.New("read body: more escapes or line ends than can be searched")

// piece is how much is searched at a time.
const piece = 16 << 10

// Read gives bytes in which nothing was found.
func (f *filter) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for f.ready == 0 && f.err == nil {
		f.fill()
	}
	if f.ready == 0 {
		return 0, f.err
	}
	n := copy(p, f.buf[:f.ready])
	f.buf = f.buf[n:]
	f.ready -= n
	if f.ready == 0 && len(f.buf) == 0 {
		return n, f.err
	}
	return n, nil
}

func (f *filter) fill() {
	if f.room == nil {
		f.room = make([]byte, piece)
	}
	n, err := f.src.Read(f.room)
	if len(f.buf) == 0 {
		f.buf = f.store[:0]
	}
	begin := len(f.buf)
	f.buf = append(f.buf, f.room[:n]...)
	if begin == 0 {
		f.store = f.buf
	}
	for begin < len(f.buf) {
		hit, ok := f.s.scan(f.buf[begin:])
		if !ok {
			break
		}
		begin += hit.end
		if ferr := f.found(f.buf[:begin], hit); ferr != nil {
			f.buf, f.ready, f.err = nil, 0, ferr
			return
		}
	}
	f.err = err
	f.ready = len(f.buf)
	if err != nil {
		return
	}
	held := f.s.held()
	if held > maxHeld {
		f.buf, f.ready, f.err = nil, 0, ErrHidden
		return
	}
	f.ready = max(0, len(f.buf)-held)
}

// Close closes the body beneath.
func (f *filter) Close() error { return f.src.Close() }
