package state

import (
	"strings"
	"unicode"
)

// fold gives a path as the least exact of file systems would find it: ext4's
// case folding and HFS+ leave out characters that do not show, VFAT and NTFS dots
// and spaces at the end, and have short names.
func fold(rel string) string {
	if simple(rel) {
		return strings.ToLower(rel)
	}
	parts := strings.Split(strings.Map(foldRune, rel), "/")
	for i, p := range parts {
		if short := strings.TrimRight(p, ". "); short != "" {
			parts[i] = short
		}
		if parts[i] == "git~1" {
			parts[i] = ".git"
		}
	}
	return strings.Join(parts, "/")
}

// simple tells that only the case of letters is to be folded, which is nearly always so.
func simple(s string) bool {
	for i := range len(s) {
		c := s[i]
		end := i+1 == len(s) || s[i+1] == '/'
		if c >= 0x80 || c == '~' || end && (c == '.' || c == ' ') {
			return false
		}
	}
	return true
}

func foldRune(r rune) rune {
	if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
		return -1
	}
	// One of the letters that fold together may be an ASCII one.
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if other < 0x80 {
			return unicode.ToLower(other)
		}
	}
	return unicode.ToLower(r)
}
