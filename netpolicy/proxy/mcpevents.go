package proxy

import (
	"bytes"
	"errors"
)

// serverEvent is one server-sent event.
type serverEvent struct {
	name  string
	id    string
	hasID bool
	retry string
	data  []byte
}

// maxEventField bounds an event's name and id.
const maxEventField = 1 << 10

var errEventField = errors.New("a field of an event is too long")

// eventSplitter finds the events in a stream (HTML, section 9.2.6), whatever
// pieces it comes in. It keeps no more than the event at hand, and fails with
// errMessageSize when that has more than most bytes.
type eventSplitter struct {
	most int64
	// comment is given the text of each comment, and event each event, data or
	// none, at the empty line that ends it.
	comment func([]byte)
	event   func(serverEvent) error

	line   []byte // the line that has not ended yet
	begun  bool   // something of the stream was seen
	cr     bool   // the last line ended with CR, so that LF may follow
	at     serverEvent
	filled bool // at has a field
	lines  int  // of data
}

// kept is how many bytes are kept.
func (s *eventSplitter) kept() int64 { return int64(cap(s.line) + cap(s.at.data)) }

// feed takes the next piece.
func (s *eventSplitter) feed(b []byte) error {
	if s.cr && len(b) > 0 {
		s.cr = false
		b = bytes.TrimPrefix(b, []byte("\n"))
	}
	for len(b) > 0 {
		end := bytes.IndexAny(b, "\r\n")
		if end < 0 {
			s.line = append(s.line, b...)
			return s.check()
		}
		s.line = append(s.line, b[:end]...)
		if err := s.check(); err != nil {
			return err
		}
		crlf := b[end] == '\r'
		b = b[end+1:]
		if crlf && len(b) == 0 {
			s.cr = true
		} else if crlf {
			b = bytes.TrimPrefix(b, []byte("\n"))
		}
		line := s.line
		s.line = nil
		if err := s.endLine(line); err != nil {
			return err
		}
	}
	return nil
}

func (s *eventSplitter) check() error {
	if int64(len(s.line)+len(s.at.data)) > s.most {
		return errMessageSize
	}
	return nil
}

func (s *eventSplitter) endLine(line []byte) error {
	if !s.begun {
		s.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		return s.endEvent()
	}
	if line[0] == ':' {
		s.comment(line[1:])
		return nil
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if s.lines++; s.lines > 1 {
			s.at.data = append(s.at.data, '\n')
		}
		s.at.data = append(s.at.data, value...)
	case "event":
		s.at.name = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			s.at.id, s.at.hasID = string(value), true
		}
	case "retry":
		if isDigits(value) {
			s.at.retry = string(value)
		}
	default:
		return nil
	}
	if len(s.at.name) > maxEventField || len(s.at.id) > maxEventField || len(s.at.retry) > maxEventField {
		return errEventField
	}
	s.filled = true
	return s.check()
}

func (s *eventSplitter) endEvent() error {
	if !s.filled {
		return nil
	}
	e := s.at
	s.at, s.filled, s.lines = serverEvent{}, false, 0
	return s.event(e)
}

func isDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}
