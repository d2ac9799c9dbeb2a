package audit

import "strings"

// hidden stands for a value that is left out.
const hidden = "[redacted]"

// Redact prepares a request target for the record: the path, with segments
// that look like tokens left out (chat bots carry theirs in the path), and of
// the query only the parameters' names.
func Redact(target string) string {
	path, query, found := strings.Cut(target, "?")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if looksSecret(s) {
			segments[i] = hidden
		}
	}
	path = strings.Join(segments, "/")
	if !found {
		return path
	}
	params := strings.Split(query, "&")
	for i, p := range params {
		params[i] = redactParam(p)
	}
	return path + "?" + strings.Join(params, "&")
}

func redactParam(p string) string {
	name, _, found := strings.Cut(p, "=")
	if !found || !plainName(name) || looksSecret(name) {
		return hidden
	}
	return name + "=" + hidden
}

func plainName(s string) bool {
	if s == "" || len(s) > 40 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !isLetter(c) && !isDigit(c) && !strings.ContainsRune("_.-[]", rune(c)) {
			return false
		}
	}
	return true
}

// looksSecret errs towards leaving out: 24 characters or more that mix upper
// case, lower case and digits. Commit hashes, UUIDs and slugs do not.
func looksSecret(s string) bool {
	if len(s) < 24 {
		return false
	}
	var upper, lower, digit bool
	for i := range len(s) {
		c := s[i]
		upper = upper || (c >= 'A' && c <= 'Z')
		lower = lower || (c >= 'a' && c <= 'z')
		digit = digit || isDigit(c)
	}
	return upper && lower && digit
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
