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
// spelling, "." or ".." written with escapes or followed by ";", "\" and "/"
// as escapes, raw "\", a second layer of escapes (%252e), control bytes,
// escapes that do not decode to well-formed UTF-8, raw bytes outside ASCII,
// "?" and "#".
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
	var wire strings.Builder
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '%' {
			if err := checkRaw(c); err != nil {
				return "", err
			}
			writeRaw(&wire, c)
			continue
		}
		c, ok := unescape(raw, i)
		if !ok {
			return "", errors.New("broken percent-escape")
		}
		if err := checkEscaped(c); err != nil {
			return "", err
		}
		i += 2
		if isUnreserved(c) {
			wire.WriteByte(c)
		} else {
			writeEscape(&wire, c)
		}
	}
	canonical := wire.String()
	if err := checkDots(canonical, raw); err != nil {
		return "", err
	}
	return canonical, checkDecoded(canonical)
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

func checkEscaped(c byte) error {
	switch {
	case c < ' ' || c == 0x7f:
		return errors.New("escaped control byte")
	case c == '/' || c == '\\':
		return errors.New("escaped slash or backslash")
	}
	return nil
}

// checkDots refuses every dot segment but a plain ".". Java servers cut path
// parameters off before they resolve dots, so "..;x" counts, and some unescape
// them first, so "..%3Bx" does too.
func checkDots(canonical, raw string) error {
	stem := canonical
	if i := strings.IndexByte(stem, ';'); i >= 0 {
		stem = stem[:i]
	}
	if i := strings.Index(stem, "%3B"); i >= 0 {
		stem = stem[:i]
	}
	if stem == ".." || stem == "." && raw != "." {
		return errors.New("dot segment")
	}
	return nil
}

// checkDecoded refuses what would change its meaning if a server decoded once
// more, and bytes that are not UTF-8 (overlong forms of "." and "/" are not).
func checkDecoded(canonical string) error {
	if strings.IndexByte(canonical, '%') < 0 {
		return nil
	}
	for rest := canonical; ; {
		i := strings.Index(rest, "%25")
		if i < 0 {
			break
		}
		rest = rest[i+3:]
		if len(rest) >= 2 && isHex(rest[0]) && isHex(rest[1]) {
			return errors.New("escaped twice")
		}
	}
	decoded := decodeCanonical(canonical)
	if !utf8.ValidString(decoded) {
		return errors.New("escapes are not UTF-8")
	}
	for _, r := range decoded {
		if r >= 0x80 && r < 0xa0 {
			return errors.New("escaped control character")
		}
	}
	return nil
}

// isCanonical recognises most canonical paths at a glance: no escapes, no
// empty or dotted segments, only characters that stand for themselves.
func isCanonical(s string) bool {
	if s == "" || s[0] != '/' {
		return false
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '/' || c == '.':
			if s[i-1] == '/' {
				return false
			}
		case !isPathByte(c):
			return false
		}
	}
	return true
}

func decodeCanonical(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		c, n := decodeAt(s, i)
		b.WriteByte(c)
		i += n
	}
	return b.String()
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

func writeRaw(b *strings.Builder, c byte) {
	if isPathByte(c) {
		b.WriteByte(c)
		return
	}
	writeEscape(b, c)
}

func writeEscape(b *strings.Builder, c byte) {
	const digits = "0123456789ABCDEF"
	b.WriteByte('%')
	b.WriteByte(digits[c>>4])
	b.WriteByte(digits[c&15])
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
func isPathByte(c byte) bool {
	return isUnreserved(c) || strings.IndexByte("!$&'()*+,;=:@", c) >= 0
}
