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
func Holds(raw []byte, secret string) bool {
	if len(secret) < 8 {
		return false
	}
	for _, text := range texts(raw) {
		if holdsFolded(text, secret) || holdsFolded(text, hex.EncodeToString([]byte(secret))) {
			return true
		}
		for _, inner := range base64Cores(secret) {
			if bytes.Contains(withoutSpace(text), []byte(inner)) {
				return true
			}
		}
	}
	return false
}

// spelled tells whether raw holds a word in any spelling.
func spelled(raw []byte, word string) bool {
	for _, text := range texts(raw) {
		if holdsFolded(text, word) {
			return true
		}
	}
	return false
}

func holdsFolded(text []byte, word string) bool {
	return bytes.Contains(bytes.ToLower(text), []byte(strings.ToLower(word)))
}

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
	return bytes.Map(func(r rune) rune {
		if r == '\r' || r == '\n' || r == ' ' {
			return -1
		}
		return r
	}, b)
}

// texts gives everything that a reader could make of bytes: as they are,
// without the framing of chunks, unpacked, decoded from UTF-16, unescaped.
func texts(raw []byte) [][]byte {
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
	all := base
	for _, b := range base {
		s := string(b)
		for range 3 {
			s = percent(s)
			all = append(all, []byte(s))
		}
		s = string(b)
		for range 2 {
			s = unslash(s)
			all = append(all, []byte(s))
		}
		all = append(all, []byte(html.UnescapeString(string(b))))
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

// unpacked gives what packed bodies hold, up to 1 MiB each.
func unpacked(raw []byte) [][]byte {
	var out [][]byte
	add := func(r io.Reader, err error) {
		if err != nil {
			return
		}
		if b, _ := io.ReadAll(io.LimitReader(r, 1<<20)); len(b) > 0 {
			out = append(out, b)
			if len(b) > 2 && b[0] == 0x1f && b[1] == 0x8b {
				if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
					inner, _ := io.ReadAll(io.LimitReader(z, 1<<20))
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
