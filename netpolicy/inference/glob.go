package inference

import "strings"

// matches compares a name with a pattern: "*" stands for any run of characters
// between slashes, "**" across them. Letter case counts.
func matches(pattern, name string) bool {
	star, deep, mark := -1, false, 0
	deepStar, deepMark := -1, 0
	p, i := 0, 0
	for i < len(name) {
		switch {
		case strings.HasPrefix(pattern[p:], "**"):
			deepStar, deepMark = p, i
			star, deep = -1, true
			p += 2
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == name[i]:
			p++
			i++
		case star >= 0 && name[mark] != '/':
			mark++
			p, i = star+1, mark
		case deep:
			deepMark++
			star = -1
			p, i = deepStar+2, deepMark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// matchesAny tells whether one of the patterns fits.
func matchesAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if matches(p, name) {
			return true
		}
	}
	return false
}

// covers tells whether a pattern fits every name that another one fits, as far
// as that can be told from samples of it. It never says yes for a name without
// wildcards that does not fit.
func covers(pattern, other string) bool {
	wide := strings.ReplaceAll(other, "**", "\x00")
	for _, run := range []string{"", "a", "a1.-z"} {
		for _, deep := range []string{"", "a", "a/b/c"} {
			if !matches(pattern, strings.ReplaceAll(strings.ReplaceAll(wide, "*", run), "\x00", deep)) {
				return false
			}
		}
	}
	return true
}
