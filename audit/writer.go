package audit

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// writer appends JSON. encoding/json would cost as much as all else of an event
// together; a test holds that both say the same.
type writer struct{ b []byte }

// key begins a member of the object that is open.
func (j *writer) key(name string) {
	if last := j.b[len(j.b)-1]; last != '{' {
		j.b = append(j.b, ',')
	}
	j.b = append(j.b, '"')
	j.b = append(j.b, name...)
	j.b = append(j.b, `":`...)
}

// open begins an object, as a member unless name is "".
func (j *writer) open(name string) {
	if name != "" {
		j.key(name)
	}
	j.b = append(j.b, '{')
}

func (j *writer) close() { j.b = append(j.b, '}') }

// text adds a member unless it is empty.
func (j *writer) text(name, value string) {
	if value == "" {
		return
	}
	j.key(name)
	j.quote(value)
}

func (j *writer) texts(name string, values []string) {
	if len(values) == 0 {
		return
	}
	j.key(name)
	j.b = append(j.b, '[')
	for i, v := range values {
		if i > 0 {
			j.b = append(j.b, ',')
		}
		j.quote(v)
	}
	j.b = append(j.b, ']')
}

func (j *writer) integer(name string, value int64) {
	j.key(name)
	j.b = strconv.AppendInt(j.b, value, 10)
}

func (j *writer) integerUnlessZero(name string, value int64) {
	if value != 0 {
		j.integer(name, value)
	}
}

// float adds a member unless it is 0 or no number, which JSON cannot say.
func (j *writer) float(name string, value float64) {
	if value == 0 || math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	j.key(name)
	j.b = strconv.AppendFloat(j.b, value, 'g', -1, 64)
}

func (j *writer) number(before byte, value uint64) []byte {
	return strconv.AppendUint(append(j.b, before), value, 10)
}

func (j *writer) quote(s string) {
	j.b = append(j.b, '"')
	j.b = appendText(j.b, s)
	j.b = append(j.b, '"')
}

// appendText appends s as it stands between the quotes of a JSON string, with
// everything escaped that Escape escapes.
func appendText(b []byte, s string) []byte {
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if c >= 0x80 && plain(r) && !(r == utf8.RuneError && n == 1) {
			i += n
			continue
		}
		b = append(b, s[start:i]...)
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case r > 0xffff:
			b = appendHex(b, (r-0x10000)>>10+0xd800)
			b = appendHex(b, (r-0x10000)&0x3ff+0xdc00)
		default:
			b = appendHex(b, r)
		}
		i += n
		start = i
	}
	return append(b, s[start:]...)
}

func appendHex(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
