package docker

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Kind says what has to be done beside passing a call on.
type Kind uint8

// The kinds. The zero value is passed on as it is, once what it names was found
// to be the run's own.
const (
	Pass Kind = iota
	Create
	Images  // the answer is cut down by Set.Images
	Version // the answer is cut down by Set.Version
	Info    // likewise by Set.Info
)

// Call is a request that may be made.
type Call struct {
	Kind   Kind
	Method string
	// Path is where it goes, with Query. "{id}" stands for the container's whole
	// identifier, which the engine has to be asked for first.
	Path  string
	Query url.Values
	// Container is what the client called the container, Exec the identifier of a
	// command in one. Whose they are has to be checked.
	Container, Exec string
	// Body is sent as JSON. Nil: there is none.
	Body []byte
	// Hijack tells that the connection may carry bytes after the answer.
	Hijack bool
	// Version is the prefix of the API's version ("/v1.47"), or "".
	Version string
}

// Request is what a client asks for.
type Request struct {
	Method, Path, Query string
	Upgrade             bool // asked for
	Body                []byte
}

// endpoint is one way to use the engine.
type endpoint struct {
	method string
	// path has "{c}" for a container, "{x}" for an exec and "{i}" for an image.
	path  string
	query map[string]func(string) bool
	judge func(*Set, *Call, Request) error
	// hijack and body say what a request may have.
	hijack, body bool
	kind         Kind
}

// maxSegments bounds the parts of a path.
const maxSegments = 16

// Judge decides one request. What it gives is to be sent in place of it.
func (s *Set) Judge(r Request) (Call, error) {
	if s == nil {
		return Call{}, deny("the policy opens no container engine")
	}
	segments, version, err := splitPath(r.Path)
	if err != nil {
		return Call{}, err
	}
	known := false
	for _, e := range endpoints() {
		c := Call{Kind: e.kind, Method: r.Method, Version: version, Hijack: e.hijack && r.Upgrade}
		if !c.take(e.path, segments) {
			continue
		}
		if known = true; e.method != r.Method {
			continue
		}
		return c, s.judge(e, &c, r)
	}
	if known {
		return Call{}, &Refused{http.StatusMethodNotAllowed, "the method is not allowed there: " + r.Method}
	}
	return Call{}, deny("this part of the engine's API is not open to the sandbox: /%s", clip(strings.Join(segments, "/")))
}

func (s *Set) judge(e endpoint, c *Call, r Request) error {
	switch {
	case r.Upgrade && !e.hijack:
		return malformed("no upgrade is carried there")
	case len(r.Body) > 0 && !e.body:
		return malformed("a body has no meaning there")
	}
	var err error
	if c.Query, err = readQuery(r.Query, e.query); err != nil {
		return err
	}
	if e.judge != nil {
		return e.judge(s, c, r)
	}
	return nil
}

// splitPath gives the parts of a path, without the prefix of a version. Nothing
// in it may be encoded, empty or a dot segment: two readers could take it
// differently.
func splitPath(path string) (segments []string, version string, err error) {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok || len(path) > 2*maxImage {
		return nil, "", malformed("malformed path")
	}
	segments = strings.Split(rest, "/")
	if len(segments) > maxSegments {
		return nil, "", malformed("malformed path")
	}
	for _, part := range segments {
		if part == "" || part == "." || part == ".." {
			return nil, "", malformed("a part of the path is empty or made of dots")
		}
		for i := range len(part) {
			if c := part[i]; !isWord(c) && c != ':' && c != '@' {
				return nil, "", malformed("byte %q in the path", c)
			}
		}
	}
	minor, versioned := strings.CutPrefix(segments[0], "v")
	if !versioned || !strings.Contains(minor, ".") {
		return segments, "", nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(minor, "1."))
	if err != nil || "v1."+strconv.Itoa(n) != segments[0] || n < 40 || n > 99 {
		return nil, "", malformed("versions 1.40 to 1.99 of the API are understood, not %q", clip(segments[0]))
	}
	return segments[1:], "/" + segments[0], nil
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
}

// take fits segments to the path of an endpoint, and notes what they name.
func (c *Call) take(path string, segments []string) bool {
	want := strings.Split(path, "/")
	if i := indexOf(want, "{i}"); i >= 0 && len(segments) > len(want) { // a name of several parts
		n := len(segments) - len(want) + 1
		if i+n > len(segments) {
			return false
		}
		joined := strings.Join(segments[i:i+n], "/")
		segments = append(append(append([]string{}, segments[:i]...), joined), segments[i+n:]...)
	}
	if len(want) != len(segments) {
		return false
	}
	out := make([]string, len(want))
	for i, w := range want {
		out[i] = segments[i]
		switch w {
		case "{c}":
			c.Container, out[i] = segments[i], "{id}"
		case "{x}":
			c.Exec = segments[i]
		case "{i}":
		default:
			if w != segments[i] {
				c.Container, c.Exec = "", ""
				return false
			}
		}
	}
	if strings.ContainsAny(c.Container+c.Exec, ":@") {
		return false
	}
	c.Path = c.Version + "/" + strings.Join(out, "/")
	return true
}

func indexOf(list []string, s string) int {
	for i := range list {
		if list[i] == s {
			return i
		}
	}
	return -1
}

// readQuery reads parameters, each of them known, there once, and with a value
// that may be. What is empty is left out.
func readQuery(text string, known map[string]func(string) bool) (url.Values, error) {
	out := url.Values{}
	if text == "" {
		return out, nil
	}
	all, err := url.ParseQuery(text)
	if err != nil {
		return nil, malformed("malformed query")
	}
	for name, values := range all {
		check, ok := known[name]
		switch {
		case !ok && len(values) == 1 && values[0] == "":
		case !ok:
			return nil, deny("the parameter %q is not allowed there", clip(name))
		case len(values) != 1:
			return nil, malformed("the parameter %q is there more than once", name)
		case values[0] == "":
		case !check(values[0]):
			return nil, deny("the parameter %q has a value that is not allowed", name)
		default:
			out[name] = values
		}
	}
	return out, nil
}
