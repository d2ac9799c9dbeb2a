package credential

// scanner reads a text in pieces and finds what its machine looks for, as it
// stands and with single characters escaped: by percent signs, as often as may
// be, by a JSON string's backslashes, or with line ends in between. The zero
// value finds nothing.
//
// The two readings differ only for as long as an escape has an effect on what
// was matched, so most text is read once.
type scanner struct {
	m       *machine
	plain   uint32 // the state after the text as it stands
	decoded uint32 // the state after the decoded text, while apart is true
	apart   bool
	pending [6]byte // an escape that is not complete
	n       int
	// span is how many bytes decoded has been away from its beginning for: what
	// was matched began among them.
	span int
}

// match is something found: the text, the number of bytes up to its end, and
// whether it stands there as it is.
type match struct {
	text  int32
	end   int
	plain bool
}

// scan reads until something is found. Without a match, all of p was read.
func (s *scanner) scan(p []byte) (match, bool) {
	m := s.m
	if m == nil {
		return match{}, false
	}
	i := 0
	for i < len(p) {
		if s.apart {
			if f, ok := s.slow(p[i]); ok {
				f.end = i + 1
				return f, true
			}
			i++
			continue
		}
		var hit bool
		if i, hit = s.fast(p, i); hit {
			return match{m.ends[m.state(s.plain)], i, true}, true
		}
		if i < len(p) {
			s.apart, s.decoded, s.n = true, s.plain, 0
			s.span = int(m.depth[m.state(s.plain)])
		}
	}
	return match{}, false
}

// fast reads from p[i] on while both readings are one. It stops behind a match,
// or before a character that makes them differ.
func (s *scanner) fast(p []byte, i int) (end int, hit bool) {
	class, next, at := &s.m.class, s.m.next, s.plain
	for ; i < len(p); i++ {
		c := class[p[i]]
		if c >= escape {
			if s.begins(p[i], at) {
				break
			}
			c &^= escape
		}
		at = next[at+uint32(c)]
		if at >= found {
			s.plain = at &^ found
			return i + 1, true
		}
	}
	s.plain = at
	return i, false
}

// begins tells whether a character makes the readings differ: a line end does
// so only within something.
func (s *scanner) begins(c byte, at uint32) bool {
	return c == '%' || c == '\\' || at != 0
}

// slow reads one byte in both readings.
func (s *scanner) slow(c byte) (match, bool) {
	m := s.m
	s.span++
	s.plain = m.step(s.plain, c)
	hit := s.plain&found != 0
	f := match{m.ends[m.state(s.plain)], 0, true}
	s.plain &^= found
	s.feed(c)
	if !hit && s.decoded&found != 0 {
		hit = true
		f = match{m.ends[m.state(s.decoded)], 0, false}
	}
	s.decoded &^= found
	if s.n == 0 {
		if s.decoded == 0 {
			s.span = 0
		}
		s.apart = s.decoded != s.plain
	}
	return f, hit
}

// feed decodes. What comes out of an escape is read again: it may begin another.
func (s *scanner) feed(c byte) {
	if s.n == 0 {
		if c == '%' || c == '\\' {
			s.pending[0], s.n = c, 1
		} else {
			s.emit(c)
		}
		return
	}
	s.pending[s.n] = c
	s.n++
	switch out, state := unescape(s.pending[:s.n]); state {
	case complete:
		s.n = 0
		s.feed(out)
	case nothing:
		s.n = 0
	case broken:
		// The first character stands for itself, the others are read again.
		rest, n := s.pending, s.n
		s.n = 0
		s.emit(rest[0])
		for _, c := range rest[1:n] {
			s.feed(c)
		}
	}
}

func (s *scanner) emit(c byte) {
	if c == '\r' || c == '\n' {
		return // base64 and hexadecimal are wrapped
	}
	s.decoded = s.m.step(s.decoded, c) | s.decoded&found
}

// The states of an escape.
const (
	incomplete = iota
	complete   // it stands for one character
	nothing    // it stands for a line end
	broken     // it is none
)

func unescape(e []byte) (c byte, state int) {
	if e[0] == '%' {
		return digitsOf(e[1:], 2)
	}
	switch e[1] {
	case 'u', 'x':
		n := 4
		if e[1] == 'x' {
			n = 2
		}
		return digitsOf(e[2:], n)
	case 'n', 'r':
		return 0, nothing
	}
	return e[1], complete
}

// digitsOf reads n hexadecimal digits. All characters that are searched for are
// ASCII; whatever else is written this way is none of them.
func digitsOf(e []byte, n int) (byte, int) {
	v := 0
	for _, c := range e {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | int(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			v = v<<4 | int(c|0x20-'a'+10)
		default:
			return 0, broken
		}
	}
	switch {
	case len(e) < n:
		return 0, incomplete
	case v > 0x7f:
		return 0, complete
	}
	return byte(v), complete
}

// held is how many of the last bytes must not be passed on before more was read.
func (s *scanner) held() int {
	if s.m == nil {
		return 0
	}
	n := int(s.m.hold[s.m.state(s.plain)])
	if s.apart && (s.m.hold[s.m.state(s.decoded)] > 0) {
		n = max(n, s.span)
	}
	return n
}
