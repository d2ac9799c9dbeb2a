package netpolicy

import (
	"net/netip"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// The seeds lie in testdata/fuzz.

// FuzzParseHost: an accepted host is plain ASCII in lower case, says the same
// when it is read again, and no other reader can take it for an address.
func FuzzParseHost(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHost(s)
		if err != nil {
			if !h.IsZero() {
				t.Fatalf("ParseHost(%q): got host %q beside error %v", s, h, err)
			}
			return
		}
		again, err := ParseHost(h.String())
		if err != nil || again != h {
			t.Fatalf("ParseHost(%q): got %q, which reads as %q (%v)", s, h, again, err)
		}
		for _, c := range []byte(h.String()) {
			if c >= 0x7f || c <= ' ' || c >= 'A' && c <= 'Z' || strings.IndexByte("%/\\@#?[]*_", c) >= 0 {
				t.Fatalf("ParseHost(%q): got %q with byte %q", s, h, c)
			}
		}
		if addr, err := netip.ParseAddr(h.String()); (err == nil) != h.IsAddr() || addr != h.Addr() {
			t.Fatalf("ParseHost(%q): got %q, address %v", s, h, h.IsAddr())
		}
		dotted, err := ParseHost(h.String() + ".")
		if (err == nil) == h.IsAddr() || err == nil && dotted != h {
			t.Fatalf("ParseHost(%q): got %q, and with a dot %q (%v)", s, h, dotted, err)
		}
		u, err := url.Parse("https://" + bracketed(h) + ":443/")
		if err != nil || u.Hostname() != h.String() {
			t.Fatalf("ParseHost(%q): got %q, which net/url reads as %v (%v)", s, h, u, err)
		}
	})
}

func bracketed(h Host) string {
	if h.Addr().Is6() {
		return "[" + h.String() + "]"
	}
	return h.String()
}

// FuzzCanonicalPath: the form is stable, starts with one slash, holds no dot
// segment for any lenient reader, and decodes to what the raw path decodes to.
func FuzzCanonicalPath(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw string) {
		path, err := CanonicalPath(raw)
		if err != nil {
			if isCanonical(raw) {
				t.Fatalf("CanonicalPath(%q): got %v for a canonical path", raw, err)
			}
			return
		}
		if again, err := CanonicalPath(path); err != nil || again != path {
			t.Fatalf("CanonicalPath(%q): got %q, then %q (%v)", raw, path, again, err)
		}
		if !isCanonical(path) || isCanonical(raw) != (raw == path) {
			t.Fatalf("CanonicalPath(%q): got %q, canonical %v", raw, path, isCanonical(path))
		}
		if direct, err := canonicalPath(raw); err != nil || direct != path {
			t.Fatalf("canonicalPath(%q): got %q (%v), want %q", raw, direct, err, path)
		}
		if path[0] != '/' || strings.Contains(path, "//") {
			t.Fatalf("CanonicalPath(%q): got %q", raw, path)
		}
		checkNoDots(t, raw, path)
	})
}

func checkNoDots(t *testing.T, raw, path string) {
	t.Helper()
	once, err := url.PathUnescape(path)
	if err != nil {
		t.Fatalf("CanonicalPath(%q): got %q, which does not decode: %v", raw, path, err)
	}
	rawOnce, err := url.PathUnescape(raw)
	if err != nil {
		t.Fatalf("CanonicalPath(%q): got %q from what does not decode: %v", raw, path, err)
	}
	if got, want := filled(once), filled(rawOnce); got != want {
		t.Fatalf("CanonicalPath(%q): got %q, which decodes to %q, want %q", raw, path, got, want)
	}
	if twice, err := url.PathUnescape(once); err == nil && twice != once {
		t.Fatalf("CanonicalPath(%q): got %q, which decodes twice", raw, path)
	}
	for _, segment := range strings.FieldsFunc(once, func(r rune) bool { return r == '/' || r == '\\' }) {
		if stem, _, _ := strings.Cut(segment, ";"); stem == "." || stem == ".." {
			t.Fatalf("CanonicalPath(%q): got %q with a dot segment", raw, path)
		}
	}
}

// filled drops empty and "." segments.
func filled(decoded string) string {
	var out []string
	for _, s := range strings.Split(decoded, "/") {
		if s != "" && s != "." {
			out = append(out, s)
		}
	}
	return strings.Join(out, "/")
}

// FuzzTextPattern: what fits a pattern also touches it, and what fits
// "src/**" stays below src for every program that reads it as a path.
func FuzzTextPattern(f *testing.F) {
	below, err := parseTextGlob("src/**")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if g, err := parseTextGlob(pattern); err == nil && g.fits(text) && !g.touches(text) {
			t.Fatalf("%q fits %q and does not touch it", text, pattern)
		}
		if !below.fits(text) {
			return
		}
		for reading, more := text, true; more; {
			for _, slashes := range []string{reading, strings.ReplaceAll(reading, `\`, "/")} {
				if clean := path.Clean(slashes); clean != "src" && !strings.HasPrefix(clean, "src/") || strings.ContainsRune(clean, 0) {
					t.Fatalf("%q fits src/** and leads to %q", text, clean)
				}
			}
			decoded, err := url.PathUnescape(reading)
			more, reading = err == nil && decoded != reading, decoded
		}
	})
}

// FuzzDecideDeny: adding an entry that denies never allows anything.
func FuzzDecideDeny(f *testing.F) {
	f.Fuzz(func(t *testing.T, host, denied, method, target, pattern, param, value string, port uint16) {
		h, err := ParseHost(host)
		if err != nil {
			return
		}
		path, rawQuery, err := SplitTarget(target)
		if err != nil {
			return
		}
		query, err := ParseQuery(rawQuery)
		if err != nil {
			t.Fatalf("ParseQuery(%q) after SplitTarget: %v", rawQuery, err)
		}
		before := mustCompile(t, example())
		r := Request{Host: h, Port: port, Method: method, Path: path, Query: query}
		for _, n := range withDenials(denied, method, pattern, param, value, port) {
			after, err := Compile(n)
			if err != nil {
				continue
			}
			if before.Request(r).Verdict == Deny && after.Request(r).Verdict == Allow {
				t.Fatalf("%+v is allowed once %+v denies more", r, n)
			}
			if before.Connection(h, port).Verdict == Deny && after.Connection(h, port).Verdict == Allow {
				t.Fatalf("%s:%d is allowed once %+v denies more", h, port, n)
			}
			if h.IsAddr() && before.Address(h.Addr(), port).Verdict == Deny && after.Address(h.Addr(), port).Verdict == Allow {
				t.Fatalf("address %s port %d is allowed once %+v denies more", h, port, n)
			}
		}
	})
}

// withDenials gives the example with a denied host, with one on one port, and
// with a deny clause in each rule that can have one.
func withDenials(denied, method, pattern, param, value string, port uint16) []policy.Network {
	host, limited, clauses := example(), example(), example()
	host.Deny = append(host.Deny, policy.HostRule{Host: denied})
	limited.Deny = append(limited.Deny, policy.HostRule{Host: denied, Ports: []int{int(port)}})
	m := policy.Match{Paths: []string{pattern}, Query: map[string]string{param: value}}
	if method != "" {
		m.Methods = []string{method}
	}
	for i := range clauses.Rules {
		r := &clauses.Rules[i]
		if r.Protocol != policy.ProtocolTCP && r.TLS != policy.TLSPass {
			r.Deny = append(r.Deny[:len(r.Deny):len(r.Deny)], m)
		}
	}
	return []policy.Network{host, limited, clauses}
}

// A denial denies each spelling of what it names.
func TestDenyHoldsForEverySpelling(t *testing.T) {
	e := mustCompile(t, policy.Network{
		Rules: []policy.Rule{{Name: "any", Any: true, Deny: []policy.Match{{Paths: []string{"/admin/**"}}}}},
		Deny:  []policy.HostRule{{Host: "denied.test"}},
	})
	if got := e.Request(request(t, "GET", "allowed.test/user")); got.Verdict != Allow {
		t.Fatalf("control: got %v (%s), want allow", got.Verdict, got.Reason)
	}
	for _, host := range []string{"denied.test", "DENIED.test", "denied.test.", "Denied.Test."} {
		if got := e.Connection(mustHost(t, host), 443); got.Verdict != Deny {
			t.Errorf("%s: got %v, want deny", host, got.Verdict)
		}
	}
	for _, raw := range []string{
		"/admin", "/%61dmin", "/a%64min/", "//admin", "/./admin", "/admin/x", "/admin;a", "/admin%3Ba/x",
		"/admin//x", "/;p/admin", "/x/../admin", "/%2e/admin", "/x/%2e%2e/admin", "/x/..;/admin", "/%2fadmin",
		"/%5cadmin", `/\admin`, "/%2561dmin",
	} {
		path, err := CanonicalPath(raw)
		if err != nil {
			continue // refused before any rule
		}
		if got := e.Request(Request{Host: mustHost(t, "allowed.test"), Port: 443, Method: "GET", Path: path}); got.Verdict != Deny {
			t.Errorf("%s as %s: got %v, want deny", raw, path, got.Verdict)
		}
	}
}
