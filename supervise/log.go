package supervise

import (
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// The word between the name and the text of an entry says what the entry is of
// its line.
const (
	whole = '|' // a line, or the last part of one
	part  = '+' // the line was too long and goes on in the next entry of that stream
	torn  = '~' // the line has no end: its writer ended
)

// MaxLine is the longest text of one entry (bytes). Longer lines are split.
const MaxLine = 16 << 10

// timeForm is ISO 8601 in UTC; all entries are of one width up to the name.
const timeForm = "2006-01-02T15:04:05.000Z"

// Log writes entries of the form "TIME NAME | TEXT" to a file, which loses
// none, and to a screen, which may.
type Log struct {
	// File is where every entry goes.
	File *File
	// Screen shows entries as well; nil shows them nowhere.
	Screen *Screen
	// Escape makes text safe for the screen. Nil: it is shown as it is.
	Escape func(string) string

	mu sync.Mutex // one entry at a time, so that both have the same order
}

// Say writes a message of our own, an entry for each line: a line without a head
// would be one that nobody knows the writer of.
func (l *Log) Say(name, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		l.entry(name, whole, []byte(line))
	}
}

// entry writes one entry. Several goroutines may.
func (l *Log) entry(name string, mark byte, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	head := make([]byte, 0, len(timeForm)+len(name)+len(text)+5)
	head = time.Now().UTC().AppendFormat(head, timeForm)
	head = append(append(append(head, ' '), name...), ' ', mark, ' ')
	if l.Screen != nil {
		shown := string(text)
		if l.Escape != nil {
			shown = l.Escape(shown)
		}
		l.Screen.show(string(head) + shown + "\n")
	}
	l.File.write(append(append(head, text...), '\n'))
}

// splitter cuts a stream into entries.
type splitter struct {
	log  *Log
	name string
	rest []byte // of a line that has no end yet
}

// take takes what was read.
func (s *splitter) take(b []byte) {
	for _, c := range b {
		if c == '\n' {
			s.log.entry(s.name, whole, s.rest)
			s.rest = s.rest[:0]
			continue
		}
		if len(s.rest) >= MaxLine {
			s.cut()
		}
		s.rest = append(s.rest, c)
	}
}

// cut writes what there is of a line that is too long, without tearing a
// character apart.
func (s *splitter) cut() {
	n := len(s.rest)
	for i := range min(utf8.UTFMax, n) {
		at := n - 1 - i
		if utf8.RuneStart(s.rest[at]) {
			if !utf8.FullRune(s.rest[at:]) {
				n = at
			}
			break
		}
	}
	s.log.entry(s.name, part, s.rest[:n])
	s.rest = append(s.rest[:0], s.rest[n:]...)
}

// end writes what has no end.
func (s *splitter) end() {
	if len(s.rest) > 0 {
		s.log.entry(s.name, torn, s.rest)
		s.rest = s.rest[:0]
	}
}

// ParseEntry reads one entry of a log. goesOn tells that its line goes on in the
// next entry of that name.
func ParseEntry(line string) (at, name, text string, goesOn, ok bool) {
	at, rest, found := strings.Cut(line, " ")
	if _, err := time.Parse(timeForm, at); !found || err != nil {
		return "", "", "", false, false
	}
	name, rest, found = strings.Cut(rest, " ")
	if !found || len(rest) < 2 || rest[1] != ' ' {
		return "", "", "", false, false
	}
	switch rest[0] {
	case whole, part, torn:
		return at, name, rest[2:], rest[0] == part, true
	}
	return "", "", "", false, false
}
