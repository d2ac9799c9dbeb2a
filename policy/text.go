package policy

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// maxFile is the size limit of one policy file.
const maxFile = 1 << 20

// checkText refuses bytes that make a policy look different from what it is:
// a byte order mark, NUL and other control characters, tabs, invalid UTF-8,
// and the characters that reorder or hide text.
func checkText(file string, data []byte) Problems {
	if len(data) > maxFile {
		return Problems{{
			Pos: Pos{file, 1, 1}, What: fmt.Sprintf("%d bytes are more than the limit of %d", len(data), maxFile),
			Hint: `split the policy with "extends"`,
		}}
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return Problems{{Pos: Pos{file, 1, 1}, What: "starts with a byte order mark", Hint: "save the file as UTF-8 without BOM"}}
	}
	var ps Problems
	for i, line := range bytes.Split(data, []byte("\n")) {
		if p, bad := checkLine(bytes.TrimSuffix(line, []byte("\r"))); bad {
			p.Pos = Pos{file, i + 1, p.Pos.Col}
			ps = append(ps, p)
		}
		// A binary file would give thousands.
		if len(ps) == 20 {
			break
		}
	}
	return ps
}

func checkLine(line []byte) (Problem, bool) {
	if bytes.HasPrefix(line, []byte("%")) {
		return Problem{Pos: Pos{Col: 1}, What: "directives are not allowed", Hint: "remove the line"}, true
	}
	for i := 0; i < len(line); {
		r, n := utf8.DecodeRune(line[i:])
		what, hint := badRune(r, n)
		if what != "" {
			return Problem{Pos: Pos{Col: i + 1}, What: what, Hint: hint}, true
		}
		i += n
	}
	return Problem{}, false
}

func badRune(r rune, n int) (what, hint string) {
	switch {
	case r == utf8.RuneError && n <= 1:
		return "invalid UTF-8", "save the file as UTF-8"
	case r == '\t':
		return "tab character", `use spaces; in a double-quoted string write \t`
	case r == 0:
		return "NUL character", "remove it"
	case r < ' ' || r >= 0x7f && r <= 0x9f:
		return fmt.Sprintf("control character %U", r), "remove it"
	case r == 0xfeff || r == 0xad || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f:
		return fmt.Sprintf("invisible character %U", r), "remove it; it can make the policy read differently"
	}
	return "", ""
}
