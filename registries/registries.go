// Package registries reads from the user's own configuration of npm, pip, uv, Go
// and cargo which hosts packages come from, and writes it as the rules of a
// fragment. Only files of the user and of installed programs are read, nothing
// is executed, and nothing in the workspace is believed: whoever works there
// would choose the hosts.
package registries

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// World is what the configuration is read from.
type World struct {
	// Getenv reads the environment of hermes-wrap.
	Getenv func(string) string
	// Home is the user's home directory.
	Home string
	// Workspace is the directory in which no file is read.
	Workspace string
}

// Trouble is an error that the user can mend: What is wrong, and how.
type Trouble struct{ What, Hint string }

func (t Trouble) Error() string { return t.What }

// Fragment gives the sections of "packages/CLIENT" as YAML, from the
// configuration. The error is a Trouble, or that of reading a file.
func Fragment(client string, w World) (string, error) {
	read, ok := map[string]func(*reading) error{"npm": npm, "pip": pip, "go": golang, "cargo": cargo}[client]
	if !ok {
		return "", fmt.Errorf("BUG: no client %q", client)
	}
	r := &reading{World: w, client: client, env: map[string]string{}}
	if err := read(r); err != nil {
		return "", err
	}
	return r.yaml(), nil
}

// reading is one client's configuration, as far as it was read.
type reading struct {
	World
	client  string
	places  []place
	env     map[string]string // to be set inside
	show    []string          // files to be readable inside
	believe []string          // files that were read: what runs inside must not change them
}

// place is one registry.
type place struct {
	from         string // where it is configured, for the reader of the fragment
	scheme, host string
	port         int
	base         string // path without the final slash
	whole        bool   // the whole host is read, not only what is below base
	token        *token
}

// token is where a place's bearer token is kept.
type token struct {
	env       string // a variable
	file, key string // or an entry of a file
}

// hostForm is a host in normal form; the policy judges it once more.
var hostForm = lazy(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// pathForm holds what needs no escaping in a pattern, in YAML and in a variable.
var pathForm = lazy(`^[A-Za-z0-9/._~+:-]*$`)

// lazy compiles a pattern when it is first needed: every launch starts this
// program several times, and most need none.
func lazy(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// add takes up the registry at a URL. What was said twice counts once.
func (r *reading) add(from, raw string, whole bool) error {
	p, err := parsePlace(from, raw)
	if err != nil {
		return err
	}
	p.whole = whole
	for _, have := range r.places {
		if have.scheme == p.scheme && have.host == p.host && have.port == p.port && (whole || have.base == p.base) {
			return nil
		}
	}
	r.places = append(r.places, p)
	return nil
}

func parsePlace(from, raw string) (place, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		return place{}, Trouble{fmt.Sprintf("%s: the registry is not an https URL", from), "correct it there"}
	case u.User != nil:
		return place{}, Trouble{
			fmt.Sprintf("%s: the URL holds a password, which would show inside", from),
			"take it out there, and write a rule with a credential in your policy",
		}
	case u.RawQuery != "" || u.Fragment != "" || !pathForm().MatchString(u.EscapedPath()) || strings.Contains(u.Path+"/", "/../"):
		return place{}, Trouble{fmt.Sprintf("%s: the URL holds more than a host and a plain path", from), "write a rule for it in your policy"}
	}
	p := place{from: from, scheme: u.Scheme, host: strings.ToLower(u.Hostname()), base: strings.TrimRight(u.Path, "/"), port: 443}
	if u.Scheme == "http" {
		p.port = 80
	}
	if s := u.Port(); s != "" {
		if p.port, err = strconv.Atoi(s); err != nil || p.port < 1 || p.port > 65535 {
			return place{}, Trouble{fmt.Sprintf("%s: the URL has no usable port", from), "correct it there"}
		}
	}
	if !hostForm().MatchString(p.host) {
		return place{}, Trouble{fmt.Sprintf("%s: the URL has no usable host name", from), "correct it there"}
	}
	return p, nil
}

// url is the place as a client is told it.
func (p place) url() string {
	s := p.scheme + "://" + p.host
	if p.scheme == "https" && p.port != 443 || p.scheme == "http" && p.port != 80 {
		s += ":" + strconv.Itoa(p.port)
	}
	return s + p.base + "/"
}

// unset is the trouble of a client that nothing is configured for.
func (r *reading) unset(hint string) error {
	return Trouble{fmt.Sprintf("no registry is configured for %s, and none is guessed", r.client), hint}
}
