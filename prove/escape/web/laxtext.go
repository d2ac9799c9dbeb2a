package web

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"html"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Holds tells whether the bytes of a connection hold a secret in any spelling
// that docs/credentials.md promises to find, and in some more.
func Holds(raw []byte, secret string) bool { return holds(texts(raw), secret) }

// holds does so for what texts gave.
func holds(all []text, secret string) bool {
	if len(secret) < 8 {
		return false
	}
	folded, inHex, cores := []byte(strings.ToLower(secret)), []byte(hex.EncodeToString([]byte(secret))), base64Cores(secret)
	for _, t := range all {
		if bytes.Contains(t.lower, folded) || bytes.Contains(t.lower, inHex) {
			return true
		}
		for _, inner := range cores {
			if bytes.Contains(t.tight, []byte(inner)) {
				return true
			}
		}
	}
	return false
}

// spelled tells whether one of the texts holds a word.
func spelled(all []text, word string) bool {
	for _, t := range all {
		if bytes.Contains(t.lower, []byte(word)) {
			return true
		}
	}
	return false
}

// text is one thing that bytes could be read as: in small letters, and without
// spaces and line ends.
type text struct{ lower, tight []byte }

// base64Cores gives what base64 of a secret holds at each alignment, in both
// alphabets, without the characters that depend on what is beside it.
func base64Cores(secret string) []string {
	var cores []string
	for shift := range 3 {
		b := append(make([]byte, shift), secret...)
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			s := enc.EncodeToString(b[:len(b)/3*3])
			if shift > 0 {
				s = s[4:]
			}
			if len(s) >= 12 {
				cores = append(cores, s)
			}
		}
	}
	return cores
}

func withoutSpace(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for _, c := range b {
		if c != '\r' && c != '\n' && c != ' ' {
			out = append(out, c)
		}
	}
	return out
}

// texts gives everything that a reader could make of bytes: as they are,
// without the framing of chunks, unpacked, decoded from UTF-16, unescaped.
func texts(raw []byte) []text {
	base := [][]byte{raw}
	if d := withoutChunks(raw); len(d) != len(raw) {
		base = append(base, d)
	}
	for _, b := range base[:len(base):len(base)] {
		base = append(base, unpacked(b)...)
	}
	for _, b := range base[:len(base):len(base)] {
		if bytes.IndexByte(b, 0) >= 0 {
			base = append(base, bytes.ReplaceAll(b, []byte{0}, nil)) // UTF-16 and UTF-32 of ASCII
		}
	}
	var all []text
	add := func(b []byte) { all = append(all, text{bytes.ToLower(b), withoutSpace(b)}) }
	for _, b := range base {
		add(b)
		for s, n := string(b), 0; n < 3 && strings.Contains(s, "%"); n++ {
			s = percent(s)
			add([]byte(s))
		}
		for s, n := string(b), 0; n < 2 && strings.Contains(s, `\`); n++ {
			s = unslash(s)
			add([]byte(s))
		}
		if bytes.IndexByte(b, '&') >= 0 {
			add([]byte(html.UnescapeString(string(b))))
		}
	}
	return all
}

var chunkLine = regexp.MustCompile(`\r?\n[0-9a-fA-F]{1,8}[^\r\n]{0,40}\r?\n`)

// withoutChunks drops what looks like the lines between chunks.
func withoutChunks(raw []byte) []byte {
	_, body, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !ok {
		return raw
	}
	return chunkLine.ReplaceAll(append([]byte("\n"), body...), nil)
}

// unpacked gives what packed bodies hold, up to 128 KiB each.
func unpacked(raw []byte) [][]byte {
	var out [][]byte
	add := func(r io.Reader, err error) {
		if err != nil {
			return
		}
		if b, _ := io.ReadAll(io.LimitReader(r, 128<<10)); len(b) > 0 {
			out = append(out, b)
			if len(b) > 2 && b[0] == 0x1f && b[1] == 0x8b {
				if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
					inner, _ := io.ReadAll(io.LimitReader(z, 128<<10))
					out = append(out, inner)
				}
			}
		}
	}
	if i := bytes.Index(raw, []byte{0x1f, 0x8b, 8}); i >= 0 {
		z, err := gzip.NewReader(bytes.NewReader(raw[i:]))
		add(z, err)
	}
	for _, magic := range [][]byte{{0x78, 0x9c}, {0x78, 0x01}, {0x78, 0xda}} {
		if i := bytes.Index(raw, magic); i >= 0 {
			z, err := zlib.NewReader(bytes.NewReader(raw[i:]))
			add(z, err)
		}
	}
	if _, body, ok := bytes.Cut(raw, []byte("\r\n\r\n")); ok && bytes.Contains(bytes.ToLower(raw), []byte("deflate")) {
		add(flate.NewReader(bytes.NewReader(body)), nil)
	}
	return out
}

var slashed = regexp.MustCompile(`\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[/"\\]`)

// unslash takes the backslashes of JSON off once.
func unslash(s string) string {
	return slashed.ReplaceAllStringFunc(s, func(e string) string {
		if len(e) == 2 {
			return e[1:]
		}
		n, _ := strconv.ParseUint(e[2:], 16, 32)
		return string(rune(n))
	})
}
