package netpolicy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// CanonicalPath gives the one form of a request path that is judged and that
// must be forwarded. It is idempotent.
//
// It decodes escapes of unreserved characters (RFC 3986), writes the others
// with upper-case digits, escapes visible characters that a path may not hold
// raw, removes "." segments and collapses repeated slashes. Letter case is
// kept: /ADMIN and /admin are two paths.
//
// It refuses what servers read differently from each other: ".." in any
// spelling, "." or ".." written with escapes, with spaces or followed by ";" and
// the like, also in the characters that some servers take for these (see
// hidesDots), "\" as an escape or raw, a second layer of escapes (%252e), control
// bytes, escapes that do not decode to well-formed UTF-8, raw bytes outside ASCII,
// "?" and "#".
//
// An escaped slash stays where it stands between other bytes of one segment,
// none of which would be a dot segment if it were a real one. Such a path is
// allowed only by rules that say so, see Engine.Request.
func CanonicalPath(raw string) (path string, err error) {
	if isCanonical(raw) {
		return raw, nil
	}
	path, err = canonicalPath(raw)
	if err != nil {
		return "", fmt.Errorf("parse path %q: %w", clip(raw), err)
	}
	return path, nil
}

// SplitTarget splits a request target in origin form ("/path?query") into the
// canonical path and the query, which is checked as ParseQuery does and
// otherwise unchanged.
func SplitTarget(target string) (path, query string, err error) {
	path, query, _ = strings.Cut(target, "?")
	if path, err = CanonicalPath(path); err != nil {
		return "", "", err
	}
	if _, err = ParseQuery(query); err != nil {
		return "", "", err
	}
	return path, query, nil
}

func canonicalPath(raw string) (string, error) {
	if raw == "" || raw[0] != '/' {
		return "", errors.New("does not start with a slash")
	}
	var out strings.Builder
	for rest, more := raw[1:], true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, "/")
		canonical, err := canonicalSegment(segment)
		if err != nil {
			return "", err
		}
		if canonical == "" || canonical == "." {
			continue
		}
		out.WriteByte('/')
		out.WriteString(canonical)
	}
	if endsInSlash(raw) || out.Len() == 0 {
		out.WriteByte('/')
	}
	return out.String(), nil
}

// endsInSlash also sees "/a/." as "/a/".
func endsInSlash(raw string) bool {
	return strings.HasSuffix(raw, "/") || strings.HasSuffix(raw, "/.")
}

// canonicalSegment gives the wire form of one segment: "" for an empty one, "."
// for a plain dot.
func canonicalSegment(raw string) (string, error) {
	if raw == "." {
		return raw, nil
	}
	var wire strings.Builder
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '%' {
			if err := checkRaw(c); err != nil {
				return "", err
			}
			writeWire(&wire, c, isPathByte(c))
			continue
		}
		c, ok := unescape(raw, i)
		if !ok {
			return "", errors.New("broken percent-escape")
		}
		i += 2
		writeWire(&wire, c, isUnreserved(c))
	}
	return wire.String(), checkParts(wire.String())
}

// checkParts judges a segment, and what it falls into for a server that takes
// an escaped slash for a real one.
func checkParts(s string) error {
	if strings.IndexByte(s, '%') < 0 || !strings.Contains(s, escapedSlash) {
		return checkSegment(s)
	}
	for part := range strings.SplitSeq(s, escapedSlash) {
		if part == "" {
			return errSlash
		}
		if err := checkSegment(part); err != nil {
			return err
		}
	}
	return nil
}

// escapedSlash is a slash inside a segment, in canonical form.
const escapedSlash = "%2F"

// splitSlashes gives a canonical path with escaped slashes as real ones, or ""
// for a path that holds none.
func splitSlashes(path string) string {
	if strings.IndexByte(path, '%') < 0 || !strings.Contains(path, escapedSlash) {
		return ""
	}
	return strings.ReplaceAll(path, escapedSlash, "/")
}

func writeWire(b *strings.Builder, c byte, plain bool) {
	const digits = "0123456789ABCDEF"
	if plain {
		b.WriteByte(c)
		return
	}
	b.WriteByte('%')
	b.WriteByte(digits[c>>4])
	b.WriteByte(digits[c&15])
}

func checkRaw(c byte) error {
	switch {
	case c <= ' ' || c >= 0x7f:
		return fmt.Errorf("raw byte %q", c)
	case c == '\\':
		return errors.New("backslash")
	case c == '?' || c == '#':
		return fmt.Errorf("%q in a path", c)
	}
	return nil
}

// isCanonical tells whether CanonicalPath would give s back. It needs no
// memory, so that each decision can afford it.
func isCanonical(s string) bool {
	if s == "" || s[0] != '/' {
		return false
	}
	for at := 1; ; {
		seg, after, ok := nextSegment(s, at)
		if !ok {
			return true
		}
		last := after > len(s)
		if seg == "" && !last || checkParts(seg) != nil {
			return false
		}
		at = after
	}
}

// The faults of a segment.
var (
	errDots    = errors.New("dot segment")
	errRaw     = errors.New("byte that must be escaped")
	errEscape  = errors.New("escape not in canonical form")
	errControl = errors.New("escaped control byte")
	errSlash   = errors.New("escaped slash at an end of a segment, or escaped backslash")
	errTwice   = errors.New("escaped twice")
	errUTF8    = errors.New("escapes are not UTF-8")
)

// checkSegment tells what keeps a segment from being canonical.
func checkSegment(s string) error {
	if hidesDots(s) {
		return errDots
	}
	for i := 0; i < len(s); {
		if s[i] != '%' {
			if !isPathByte(s[i]) {
				return errRaw
			}
			i++
			continue
		}
		width, err := checkEscape(s, i)
		if err != nil {
			return err
		}
		i += width
	}
	return nil
}

// checkEscape judges the escaped character at s[i:] and gives its width.
func checkEscape(s string, i int) (width int, err error) {
	c, ok := unescape(s, i)
	switch {
	case !ok || isLowerHex(s[i+1]) || isLowerHex(s[i+2]) || isUnreserved(c):
		return 0, errEscape
	case c < ' ' || c == 0x7f:
		return 0, errControl
	case c == '/' || c == '\\':
		return 0, errSlash
	case c == '%' && i+4 < len(s) && isHex(s[i+3]) && isHex(s[i+4]):
		// A server that decodes once more would see another character.
		return 0, errTwice
	case c < utf8.RuneSelf:
		return 3, nil
	}
	return checkRune(s, i)
}

// checkRune judges an escaped character of several bytes. Overlong forms of
// "." and "/" are not UTF-8.
func checkRune(s string, i int) (width int, err error) {
	var buf [utf8.UTFMax]byte
	n := 0
	for n < len(buf) {
		c, ok := byte(0), false
		if at := i + 3*n; at < len(s) && s[at] == '%' {
			c, ok = unescape(s, at)
		}
		if !ok {
			break
		}
		buf[n] = c
		n++
	}
	r, size := utf8.DecodeRune(buf[:n])
	switch {
	case r == utf8.RuneError && size <= 1:
		return 0, errUTF8
	case r < 0xa0:
		return 0, errControl
	}
	// The bytes that follow the first are escapes in any case, but in upper
	// case only if they were written so.
	for j := i; j < i+3*size; j++ {
		if isLowerHex(s[j]) {
			return 0, errEscape
		}
	}
	return 3 * size, nil
}

// cutParameters cuts path parameters off. Java servers do so before they
// resolve dots, and some unescape before that: "..;x" and "..%3Bx" are dots.
func cutParameters(s string) string {
	if i := strings.IndexByte(s, ';'); i >= 0 {
		s = s[:i]
	}
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	if i := strings.Index(s, "%3B"); i >= 0 {
		s = s[:i]
	}
	return s
}

// decodeAt gives the decoded byte at i of a canonical path, and its width there.
func decodeAt(s string, i int) (c byte, width int) {
	if s[i] == '%' {
		if c, ok := unescape(s, i); ok {
			return c, 3
		}
	}
	return s[i], 1
}

// unescape reads the escape at s[i:].
func unescape(s string, i int) (byte, bool) {
	if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
		return 0, false
	}
	return unhex(s[i+1])<<4 | unhex(s[i+2]), true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func isLowerHex(c byte) bool { return c >= 'a' && c <= 'f' }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func isUnreserved(c byte) bool {
	return isAlnum(c) || c == '-' || c == '.' || c == '_' || c == '~'
}

// isPathByte tells what RFC 3986 lets stand raw in a segment.
func isPathByte(c byte) bool { return pathBytes[c] }

var pathBytes = func() (table [256]bool) {
	for c := range table {
		table[c] = isUnreserved(byte(c))
	}
	for _, c := range []byte("!$&'()*+,;=:@") {
		table[c] = true
	}
	return table
}()
