package audit

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Escape makes text safe to print on a terminal and keeps it on one line:
// controls (also DEL and C1), bidi marks, separators, zero-width and unassigned
// characters come out as \uXXXX, bytes that are not UTF-8 as \ufffd.
func Escape(s string) string { return string(escape([]byte(s))) }

func escape(b []byte) []byte {
	clean := true
	for _, c := range b {
		if c < 0x20 || c >= 0x7f {
			clean = false
			break
		}
	}
	if clean {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case plain(r) && !(r == utf8.RuneError && n == 1):
			out = append(out, b[:n]...)
		case r > 0xffff:
			hi, lo := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		b = b[n:]
	}
	return out
}

// plain tells whether a character shows as itself and does nothing else.
func plain(r rune) bool {
	if r < 0x7f {
		return r >= 0x20
	}
	return unicode.IsGraphic(r) && !unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Zs, r)
}
