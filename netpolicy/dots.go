package netpolicy

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// hidesDots tells whether some server takes a segment in wire form, or a part of
// it, for "." or "..". Java's servers cut parameters off (";"), some of them after
// they have decoded it; others decode before they look for a query. Windows drops
// spaces at the end of a name. And where text is turned into another character
// set, or is normalised, a full-width dot becomes a dot and a full-width slash a
// slash ("best fit", CVE-2024-4577).
func hidesDots(s string) bool {
	if strings.IndexByte(s, '.') < 0 && strings.IndexByte(s, '%') < 0 {
		return false
	}
	var p dotPart
	for i := 0; i < len(s); {
		r, width := decodeRuneAt(s, i)
		i += width
		if p.cut && !isSlashLike(r) {
			continue
		}
		switch {
		case isSlashLike(r):
			if p.isDots() {
				return true
			}
			p = dotPart{}
		case r == ';' || r == '?' || r == '#':
			p.cut = true
		case r == '\u2025':
			p.dots += 2
		case r == '.' || r == '\uff0e' || r == '\u2024' || r == '\ufe52':
			p.dots++
		case unicode.IsSpace(r):
			p.spaces++
		default:
			p.other = true
		}
	}
	return p.isDots()
}

// dotPart is what was seen of a segment up to something that could be a slash.
type dotPart struct {
	dots, spaces int
	other, cut   bool
}

// isDots leaves "..." alone, which is a name.
func (p dotPart) isDots() bool {
	return !p.other && p.dots > 0 && (p.dots <= 2 || p.spaces > 0)
}

// isSlashLike knows the slashes and backslashes of Unicode, and the currency signs
// that stand at the place of the backslash in Japanese and Korean character sets.
func isSlashLike(r rune) bool {
	switch r {
	case '/', '\\', '\uff0f', '\uff3c', '\ufe68', '\u2044', '\u2215', '\u2216', '\u29f5', '\u29f8', '\u29f9', '\u00a5', '\u20a9', '\uffe5', '\uffe6':
		return true
	}
	return false
}

// decodeRuneAt gives the decoded character at i of a path in wire form, and its
// width there.
func decodeRuneAt(s string, i int) (r rune, width int) {
	c, width := decodeAt(s, i)
	if c < utf8.RuneSelf {
		return rune(c), width
	}
	var buf [utf8.UTFMax]byte
	n := 0
	for at := i; n < len(buf) && at < len(s) && s[at] == '%'; at += 3 {
		b, ok := unescape(s, at)
		if !ok {
			break
		}
		buf[n] = b
		n++
	}
	r, size := utf8.DecodeRune(buf[:n])
	return r, 3 * max(size, 1)
}
