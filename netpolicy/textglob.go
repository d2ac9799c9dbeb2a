package netpolicy

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// textGlob is a pattern over text that is not a path of a request: the name of
// a tool, a method or a ref, or a value in JSON. Segments stand between
// slashes; "*" is any run of characters in one, "**" any number of segments,
// also none.
type textGlob struct {
	text   string
	strict []textSegment
	raw    []textSegment // folded
	loose  []textSegment // folded, resolved
}

// textSegment is one segment of a text pattern.
type textSegment struct {
	deep bool
	wild bool
	text string
	glob glob
	bars string // bytes that a wildcard here does not match
}

func parseTextGlob(s string) (textGlob, error) {
	g := textGlob{text: s}
	if s == "" {
		return g, errors.New("empty pattern, which matches nothing")
	}
	if !utf8.ValidString(s) {
		return g, errors.New("not UTF-8")
	}
	for i, part := range strings.Split(s, "/") {
		if part != "**" && strings.Contains(part, "**") {
			return g, errors.New(`"**" is not a whole segment`)
		}
		if part == "." || part == ".." {
			return g, errors.New("dot segment")
		}
		seg := newTextSegment(part)
		if i == 2 && g.isURL() {
			seg.bars = "?#@:"
		}
		g.strict = append(g.strict, seg)
		seg = newTextSegment(fold(part))
		g.raw = append(g.raw, seg)
		if part != "" {
			g.loose = append(g.loose, seg)
		}
	}
	return g, nil
}

func newTextSegment(part string) textSegment {
	return textSegment{deep: part == "**", wild: strings.Contains(part, "*"), text: part, glob: newGlob(part)}
}

// isURL tells whether what is parsed so far is a scheme and "//", so that a
// host comes next: "https://*.example.org/**" must not fit
// "https://evil.test#.example.org/".
func (g *textGlob) isURL() bool {
	return len(g.strict) == 2 && strings.HasSuffix(g.strict[0].text, ":") && g.strict[1].text == ""
}

// fits tells whether the text lies inside the pattern in every reading: what is
// spelt out must be there to the letter, and a wildcard stands only for
// segments that nobody could take for something else.
func (g *textGlob) fits(s string) bool {
	return parts(s) <= maxParts && walkText(g.strict, strings.Split(s, "/"), isPlain)
}

// touches tells whether some reading of the text lies inside the pattern:
// without regard to letter case, with backslashes as slashes, escapes decoded,
// dot segments resolved, invisible characters dropped. A text of more parts than
// can be judged touches everything.
func (g *textGlob) touches(s string) bool {
	if parts(s) > maxParts {
		return true
	}
	anything := func(string) bool { return true }
	if walkText(g.raw, strings.Split(fold(s), "/"), anything) {
		return true
	}
	for reading := range readings(s) {
		if walkText(g.loose, reading, anything) {
			return true
		}
	}
	return false
}

// walkText compares all segments at once, in time proportional to the product
// of the lengths: the text is the agent's.
func walkText(pattern []textSegment, segments []string, plain func(string) bool) bool {
	reach, next := make([]bool, len(segments)+1), make([]bool, len(segments)+1)
	reach[0] = true
	for _, p := range pattern {
		next[0] = p.deep && reach[0]
		for i, s := range segments {
			if p.deep {
				next[i+1] = reach[i+1] || next[i] && plain(s)
			} else {
				next[i+1] = reach[i] && p.match(s, plain)
			}
		}
		reach, next = next, reach
	}
	return reach[len(segments)]
}

func (p *textSegment) match(s string, plain func(string) bool) bool {
	if !p.wild {
		return p.text == s
	}
	return plain(s) && !strings.ContainsAny(s, p.bars) && p.glob.match(s, false)
}

// isPlain tells whether a wildcard of "allow" may stand for the segment: no dot
// segment and nothing that some program makes one of.
func isPlain(s string) bool {
	if strings.Trim(s, ". ") == "" || !utf8.ValidString(s) {
		return false
	}
	for i, r := range s {
		switch {
		case r == '\\' || unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
			return false
		case r == '%':
			if c, ok := unescape(s, i); ok && (c < ' ' || strings.IndexByte("./\\%", c) >= 0) {
				return false
			}
		}
	}
	return true
}

// readings gives what programs make of a text that they take for a path, one at
// a time: the text may be long.
func readings(s string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		texts := []string{s}
		if seen := strings.Map(visible, s); seen != s {
			texts = append(texts, seen)
		}
		if before, _, ok := strings.Cut(s, "\x00"); ok {
			texts = append(texts, before)
		}
		for _, text := range texts {
			for range 3 {
				if !yield(resolved(fold(text))) {
					return
				}
				decoded := decodeLoose(text)
				if decoded == text {
					break
				}
				text = decoded
			}
		}
	}
}

// maxParts bounds the segments of a text, each of which takes many times its length
// in memory: no path has as many.
const maxParts = 100_000

// parts gives the number of segments that a text may fall into.
func parts(s string) int {
	n := 1
	for i := range len(s) {
		if c := s[i]; c == '/' || c == '\\' || c == '%' {
			n++
		}
	}
	return n
}

// decodeLoose decodes the escapes that are whole and keeps the rest.
func decodeLoose(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		c, width := decodeAt(s, i)
		b = append(b, c)
		i += width
	}
	return string(b)
}

// visible drops what is not seen.
func visible(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
		return -1
	}
	return r
}

// resolved splits a text as a path of any system. What leads above its start
// is taken to lead to it.
func resolved(s string) []string {
	var out []string
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '\\' }) {
		switch part {
		case ".":
			continue
		case "..":
			out = out[:max(0, len(out)-1)]
			continue
		}
		if kept := strings.TrimRight(part, " ."); kept != "" {
			part = strings.TrimSpace(kept)
		}
		out = append(out, part)
	}
	return out
}

// fold gives one spelling for all letter cases of a text, the Kelvin sign and
// the long s included.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf { // the capital is the least of each
			if r >= 'a' && r <= 'z' {
				r -= 'a' - 'A'
			}
			return r
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, s)
}

func parseTextGlobs(list []string) ([]textGlob, error) {
	if list != nil && len(list) == 0 {
		return nil, errors.New("empty list, which matches nothing")
	}
	var out []textGlob
	for _, s := range list {
		g, err := parseTextGlob(s)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", s, err)
		}
		out = append(out, g)
	}
	return out, nil
}

// fitsOne tells whether the text fits one of the patterns, or there are none.
func fitsOne(globs []textGlob, s string) bool {
	for i := range globs {
		if globs[i].fits(s) {
			return true
		}
	}
	return len(globs) == 0
}

// touchesOne tells whether the text touches one of the patterns, or there are
// none.
func touchesOne(globs []textGlob, s string) bool {
	for i := range globs {
		if globs[i].touches(s) {
			return true
		}
	}
	return len(globs) == 0
}
