package netpolicy

import "strings"

// Dashed gives the name of a header field as a server sees it which turns fields
// into variables (CGI, WSGI, Rack, PHP): some tell "_" from "-" no more, some no
// character that is neither a letter nor a digit.
func Dashed(name string) string {
	for i := range len(name) {
		if c := name[i]; !isAlnum(c) && c != '-' {
			return strings.Map(func(r rune) rune {
				if r < 0x80 && isAlnum(byte(r)) {
					return r
				}
				return '-'
			}, name)
		}
	}
	return name
}
