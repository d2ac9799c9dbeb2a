package netpolicy

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ParseQuery reads a query strictly. Parameters are separated by "&" alone:
// ";" separates them for some servers and not for others, so it is refused
// unless escaped. "+" and "%20" are spaces, repeated parameters are all kept
// in order, and broken escapes, NUL and bytes outside visible ASCII are errors.
// The empty query gives nil.
func ParseQuery(raw string) (url.Values, error) {
	if raw == "" {
		return nil, nil
	}
	values := url.Values{}
	for rest, more := raw, true; more; {
		var pair string
		pair, rest, more = strings.Cut(rest, "&")
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		n, err := unescapeQuery(name)
		if err != nil {
			return nil, fmt.Errorf("parse query: %w", err)
		}
		v, err := unescapeQuery(value)
		if err != nil {
			return nil, fmt.Errorf("parse query: %w", err)
		}
		values[n] = append(values[n], v)
	}
	return values, nil
}

func unescapeQuery(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c <= ' ' || c >= 0x7f || c == ';' || c == '#':
			return "", fmt.Errorf("byte %q", c)
		case c == '+':
			c = ' '
		case c == '%':
			var ok bool
			if c, ok = unescape(s, i); !ok {
				return "", errors.New("broken percent-escape")
			}
			if c == 0 {
				return "", errors.New("escaped NUL")
			}
			i += 2
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

// IsParameter tells whether some server takes one name of a parameter, decoded, for
// the other: in another letter case, as a list ("x[]", "x[0]"), or as PHP does,
// which takes dots, spaces and a bracket that is not closed for "_" ("x.y" is x_y).
func IsParameter(sent, name string) bool {
	if sent = strings.Trim(sent, " "); sameParameter(sent, name) {
		return true
	}
	before, after, ok := strings.Cut(sent, "[")
	return ok && (sameParameter(before, name) || sameParameter(before+"_"+after, name))
}

func sameParameter(a, b string) bool {
	return len(a) == len(b) && strings.EqualFold(underlined.Replace(a), underlined.Replace(b)) || strings.EqualFold(a, b)
}

var underlined = strings.NewReplacer(".", "_", " ", "_")
