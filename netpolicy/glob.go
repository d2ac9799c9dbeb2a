package netpolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// anyRun stands for "*" in a glob.
const anyRun = -1

// glob is a pattern of bytes and "*". In a path segment "*" stays inside the
// segment because a segment holds no slash.
type glob []int16

// match compares with s, which is percent-encoded in canonical form when
// escaped is true. It takes time proportional to the product of the lengths
// at worst.
func (g glob) match(s string, escaped bool) bool { return g.compare(s, escaped, false) }

// compare takes capitals of s for small letters if folds is true.
func (g glob) compare(s string, escaped, folds bool) bool {
	p, i := 0, 0
	star, mark := -1, 0
	for i < len(s) {
		c, width := s[i], 1
		if escaped {
			c, width = decodeAt(s, i)
		}
		if folds && c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		switch {
		case p < len(g) && g[p] == anyRun:
			star, mark = p, i
			p++
		case p < len(g) && g[p] == int16(c):
			p++
			i += width
		case star >= 0:
			width = 1
			if escaped {
				_, width = decodeAt(s, mark)
			}
			mark += width
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(g) && g[p] == anyRun {
		p++
	}
	return p == len(g)
}

func newGlob(s string) glob {
	g := make(glob, len(s))
	for i := range len(s) {
		g[i] = int16(s[i])
		if s[i] == '*' {
			g[i] = anyRun
		}
	}
	return g
}

// segment is one segment of a path pattern: "**", or a glob.
type segment struct {
	deep  bool
	folds bool // glob is in small letters and matches capitals too
	glob  glob
}

// match compares with one segment of a canonical path. "*" alone stands for a
// segment that is there: "/v1/*" does not match "/v1/".
func (s segment) match(wire string) bool {
	if wire == "" {
		return len(s.glob) == 0
	}
	return s.glob.compare(wire, true, s.folds)
}

// pathGlob is a path pattern.
type pathGlob []segment

// parsePathGlob reads a pattern: a path in which "*" stands for one segment or
// a run of characters in one, and "**" as a whole segment for any number of
// segments, also none. The rest is compared with the decoded path; "%2A" is a
// star and "%3F" a question mark. Letter case counts.
func parsePathGlob(s string) (pathGlob, error) { return parsePath(s, false) }

// parsePath lets "%2F" stand in segments if slashes is true.
func parsePath(s string, slashes bool) (pathGlob, error) {
	if s == "" || s[0] != '/' {
		return nil, errors.New("does not start with a slash")
	}
	if !utf8.ValidString(s) {
		return nil, errors.New("not UTF-8")
	}
	var g pathGlob
	for rest, more := s[1:], true; more; {
		var text string
		text, rest, more = strings.Cut(rest, "/")
		if text == "" && more {
			return nil, errors.New("empty segment")
		}
		seg, err := parseSegment(text, slashes)
		if err != nil {
			return nil, err
		}
		g = append(g, seg)
	}
	return g, nil
}

func parseSegment(text string, slashes bool) (segment, error) {
	if text == "**" {
		return segment{deep: true}, nil
	}
	if strings.Contains(text, "**") {
		return segment{}, errors.New(`"**" is not a whole segment`)
	}
	var g glob
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '*':
			g = append(g, anyRun)
			continue
		case strings.IndexByte("?#[]{}\\", c) >= 0:
			return segment{}, fmt.Errorf("%q in a pattern: only * and ** are special, escape others as %%%02X", c, c)
		case c == '%':
			if slashes && strings.HasPrefix(text[i:], escapedSlash) {
				g = append(g, '/')
				i += 2
				continue
			}
			var ok bool
			if c, ok = unescape(text, i); !ok {
				return segment{}, errors.New("broken percent-escape")
			}
			i += 2
		}
		if c < ' ' || c == 0x7f || c == '/' || c == '\\' {
			return segment{}, fmt.Errorf("byte %q, which no accepted path holds", c)
		}
		g = append(g, int16(c))
	}
	if text == "." || text == ".." || g.text() == "." || g.text() == ".." {
		return segment{}, errors.New("dot segment")
	}
	return segment{glob: g}, nil
}

func (g glob) text() string {
	b := make([]byte, 0, len(g))
	for _, c := range g {
		if c != anyRun {
			b = append(b, byte(c))
		} else {
			b = append(b, '*')
		}
	}
	return string(b)
}

// loose drops the empty segments, for matchLoose.
func (g pathGlob) loose() pathGlob {
	var out pathGlob
	for _, s := range g {
		if s.deep || len(s.glob) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// folded gives the pattern that does not tell capitals from small letters.
func (g pathGlob) folded() pathGlob {
	out := slices.Clone(g)
	for i := range out {
		out[i].folds, out[i].glob = true, slices.Clone(out[i].glob)
		for j, c := range out[i].glob {
			if c >= 'A' && c <= 'Z' {
				out[i].glob[j] = c | 0x20
			}
		}
	}
	return out
}

// match compares with a canonical path.
func (g pathGlob) match(path string) bool { return g.walk(path, nextSegment) }

// matchLoose compares a loose pattern with a path as the most lenient server
// would read it: path parameters (";x") are cut off and empty segments
// skipped. Only denials are this lenient, so that "/admin;x=1" and "/admin/"
// do not get past a denial of "/admin".
func (g pathGlob) matchLoose(path string) bool { return g.walk(path, nextStem) }

// walk goes through both at once. Only the last "**" ever has to take more.
func (g pathGlob) walk(path string, next func(string, int) (string, int, bool)) bool {
	p, at := 0, 1
	deep, mark := -1, 0
	for {
		if p < len(g) && g[p].deep {
			deep, mark = p, at
			p++
			continue
		}
		seg, after, ok := next(path, at)
		switch {
		case !ok:
			return p == len(g)
		case p < len(g) && g[p].match(seg):
			p++
			at = after
		case deep >= 0:
			_, mark, _ = next(path, mark)
			p, at = deep+1, mark
		default:
			return false
		}
	}
}

// nextSegment gives the segment that starts at, and where the next one starts.
func nextSegment(path string, at int) (seg string, after int, ok bool) {
	if at > len(path) {
		return "", at, false
	}
	if i := strings.IndexByte(path[at:], '/'); i >= 0 {
		return path[at : at+i], at + i + 1, true
	}
	return path[at:], len(path) + 1, true
}

// trimTail cuts dots and spaces off the end of a segment.
func trimTail(s string) string {
	for {
		cut := strings.TrimSuffix(strings.TrimSuffix(s, "."), "%20")
		if cut == s {
			return s
		}
		s = cut
	}
}

// nextStem is nextSegment for matchLoose.
func nextStem(path string, at int) (stem string, after int, ok bool) {
	for {
		stem, at, ok = nextSegment(path, at)
		if !ok {
			return "", at, false
		}
		if stem = trimTail(cutParameters(stem)); stem != "" {
			return stem, at, true
		}
	}
}
