package escape

import (
	"bytes"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// request is what some server takes for a request.
type request struct {
	Method string
	Target string
	Hosts  []string
}

// requestLine is one as the laxest server takes it.
var requestLine = regexp.MustCompile(`^([!-~]+)[ \t]+(.*?)(?:[ \t]+(?i:HTTP)/[0-9.]+)?[ \t]*$`)

// readings gives every request that some server sees in what a client sent on
// one connection: servers differ about which field says where a body ends.
func readings(raw []byte) []request {
	var out []request
	for _, frame := range []func(fields map[string][]string, rest []byte) int{byFirstLength, byLastLength, byChunks} {
		left := raw
		for range 100 {
			r, n := oneRequest(left, frame)
			if n == 0 {
				break
			}
			if !slices.ContainsFunc(out, func(o request) bool { return o.Method == r.Method && o.Target == r.Target }) {
				out = append(out, r)
			}
			left = left[n:]
		}
	}
	return out
}

// oneRequest reads one request and says how many bytes it has; 0: there is none.
func oneRequest(raw []byte, frame func(map[string][]string, []byte) int) (request, int) {
	text := raw
	for len(text) > 0 && (text[0] == '\r' || text[0] == '\n') {
		text = text[1:]
	}
	var r request
	fields := map[string][]string{}
	for first := true; ; first = false {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			if first {
				return r, 0
			}
			return r, len(raw)
		}
		line := strings.TrimRight(string(text[:end]), "\r")
		text = text[end+1:]
		switch {
		case first:
			m := requestLine.FindStringSubmatch(line)
			if m == nil {
				return r, 0
			}
			r.Method, r.Target = m[1], m[2]
		case line == "":
			r.Hosts = append(r.Hosts, fields["host"]...)
			n := min(frame(fields, text), len(text))
			return r, len(raw) - len(text) + n
		default:
			name, value, _ := strings.Cut(line, ":")
			name = strings.ToLower(strings.TrimSpace(name))
			fields[name] = append(fields[name], strings.TrimSpace(value))
		}
	}
}

func byFirstLength(fields map[string][]string, _ []byte) int {
	values := fields["content-length"]
	if len(values) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(strings.Split(values[0], ",")[0]))
	return max(n, 0)
}

func byLastLength(fields map[string][]string, _ []byte) int {
	values := fields["content-length"]
	if len(values) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(strings.Trim(values[len(values)-1], "+ "))
	return max(n, 0)
}

func byChunks(fields map[string][]string, rest []byte) int {
	if !strings.Contains(strings.ToLower(strings.Join(fields["transfer-encoding"], ",")), "chunked") {
		return byFirstLength(fields, rest)
	}
	at := 0
	for {
		end := bytes.IndexByte(rest[at:], '\n')
		if end < 0 {
			return len(rest)
		}
		size, _, _ := strings.Cut(strings.TrimSpace(string(rest[at:at+end])), ";")
		n, err := strconv.ParseInt(strings.TrimSpace(size), 16, 32)
		if err != nil {
			return at
		}
		at += end + 1
		if n == 0 {
			if end := bytes.Index(rest[at:], []byte("\n")); end >= 0 {
				at += end + 1
			}
			return min(at, len(rest))
		}
		at = min(at+int(n), len(rest))
		if at < len(rest) && rest[at] == '\r' {
			at++
		}
		if at < len(rest) && rest[at] == '\n' {
			at++
		}
	}
}

// forbidden is what nobody may ask allowed.test for.
var forbidden = regexp.MustCompile(`^/(secret|admin)`)

// asksForSecret tells whether some server reads the target as a path that is
// not allowed: decoded up to twice, with dot segments, backslashes, parameters
// of segments and letter case as lax servers take them.
func asksForSecret(target string) bool {
	if _, rest, absolute := strings.Cut(target, "://"); absolute {
		target = "/"
		if at := strings.IndexAny(rest, "/\\"); at >= 0 {
			target = rest[at:]
		}
	}
	for range 3 {
		for _, strip := range []bool{false, true} {
			if forbidden.MatchString(laxPath(target, strip)) {
				return true
			}
		}
		decoded, err := url.PathUnescape(target)
		if err != nil {
			decoded = lenient(target)
		}
		target = decoded
	}
	return false
}

func laxPath(target string, strip bool) string {
	p, _, _ := strings.Cut(target, "?")
	p, _, _ = strings.Cut(p, "#")
	p, _, _ = strings.Cut(p, "\x00")
	p = strings.ToLower(strings.ReplaceAll(p, `\`, "/"))
	if strip {
		segments := strings.Split(p, "/")
		for i, s := range segments {
			segments[i], _, _ = strings.Cut(s, ";")
		}
		p = strings.Join(segments, "/")
	}
	// Some drop what does not show.
	p = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xad || r >= 0x200b && r <= 0x200f || r == 0xfeff {
			return -1
		}
		return r
	}, p)
	return path.Clean("/" + p)
}

var escapedByte = regexp.MustCompile(`%[0-9a-fA-F]{2}`)

// lenient decodes what can be decoded and leaves the rest.
func lenient(s string) string {
	return escapedByte.ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(n)})
	})
}
