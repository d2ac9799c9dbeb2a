package netpolicy

import "testing"

func TestHostGlob(t *testing.T) {
	tests := []struct {
		pattern, host string
		want          bool
	}{
		{"github.com", "github.com", true},
		{"github.com", "GITHUB.com.", true},
		{"github.com", "api.github.com", false},
		{"*.github.com", "api.github.com", true},
		{"*.github.com", "API.GitHub.com.", true},
		{"*.github.com", "github.com", false},
		{"*.github.com", "a.b.github.com", false},
		{"*.github.com", "evilgithub.com", false},
		{"*.github.com", "xgithub.com", false},
		{"*.github.com", "github.com.evil.test", false},
		{"*.github.com", "api.github.com.evil.test", false},
		{"**.github.com", "api.github.com", true},
		{"**.github.com", "a.b.c.github.com", true},
		{"**.github.com", "github.com", false},
		{"**.github.com", "evilgithub.com", false},
		{"**.com", "a.b.com", true},
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.10", false},
		{"2001:db8::1", "[2001:DB8:0::1]", true},
	}
	for _, tt := range tests {
		g, err := parseHostGlob(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		h, err := ParseHost(tt.host)
		if err != nil {
			t.Fatal(err)
		}
		x := newHostIndex[int]()
		x.add(g, 1)
		if got := g.match(h); got != tt.want {
			t.Errorf("%s against %s: got %v, want %v", tt.pattern, tt.host, got, tt.want)
		}
		if got := len(x.lists(h, nil)) > 0; got != tt.want {
			t.Errorf("index of %s against %s: got %v, want %v", tt.pattern, tt.host, got, tt.want)
		}
	}
}

func TestHostGlobRefuses(t *testing.T) {
	tests := []struct{ name, pattern, want string }{
		{"bare wildcard", "*", `a bare wildcard is refused: write any: true`},
		{"bare deep wildcard", "**", `a bare wildcard is refused: write any: true`},
		{"wildcard inside", "a.*.org", `host "a.*.org": a wildcard stands only for the whole first label`},
		{"part of a label", "api-*.example.org", `host "api-*.example.org": a wildcard stands only for the whole first label`},
		{"two wildcards", "*.*.org", `host "*.*.org": a wildcard stands only for the whole first label`},
		{"upper case", "Example.org", `host "Example.org" is not in normal form: write "example.org"`},
		{"trailing dot", "*.example.org.", `host "example.org." is not in normal form: write "example.org"`},
		{"international", "bücher.example", `host "bücher.example" is not in normal form: write "xn--bcher-kva.example"`},
		{"brackets", "[::1]", `host "[::1]" is not in normal form: write "::1"`},
		{"mapped", "::ffff:192.0.2.1", `host "::ffff:192.0.2.1" is not in normal form: write "192.0.2.1"`},
		{"short IPv4", "127.1", `parse host "127.1": looks like an IPv4 address but is not four decimal numbers`},
		{"range", "10.0.0.0/8", `parse host "10.0.0.0/8": byte '/'`},
		{"wildcard address", "*.192.0.2.1", `host "*.192.0.2.1": a wildcard before an address`},
		{"port", "example.org:443", `parse host "example.org:443": not an IPv6 address`},
		{"scheme", "https://example.org", `parse host "https://example.org": not an IPv6 address`},
		{"empty", "", `parse host "": empty host`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseHostGlob(tt.pattern)
			if err == nil || err.Error() != tt.want {
				t.Errorf("parseHostGlob(%q): got %v, want %s", tt.pattern, err, tt.want)
			}
		})
	}
}

func TestPathGlob(t *testing.T) {
	tests := []struct {
		pattern, path string
		want, loose   bool
	}{
		{"/", "/", true, true},
		{"/", "/a", false, false},
		{"/v1/models", "/v1/models", true, true},
		{"/v1/models", "/v1/models/", false, true},
		{"/v1/models/", "/v1/models", false, true},
		{"/v1/models", "/v1/models;x=1", false, true},
		{"/v1/models", "/v1;x/models", false, true},
		{"/v1/models", "/;x/v1/models", false, true},
		{"/v1/models", "/v1/models%3Bx", false, true},
		{"/v1/models", "/V1/models", false, false},
		{"/v1/models", "/v1/model", false, false},
		{"/v1/*", "/v1/models", true, true},
		{"/v1/*", "/v1/", false, false},
		{"/v1/*", "/v1", false, false},
		{"/v1/*", "/v1/a/b", false, false},
		{"/*/x", "/a/x", true, true},
		{"/repos/**", "/repos", true, true},
		{"/repos/**", "/repos/", true, true},
		{"/repos/**", "/repos/a/b/c", true, true},
		{"/repos/**", "/repository", false, false},
		{"/**", "/", true, true},
		{"/**", "/a/b", true, true},
		{"/**/x", "/x", true, true},
		{"/**/x", "/a/b/x", true, true},
		{"/**/x", "/a/x/b", false, false},
		{"/**/a/**/b", "/a/a/b/b", true, true},
		{"/a/**/b/*", "/a/b/b/c", true, true},
		{"/a/**/b/*", "/a/x/b", false, false},
		{"/a*c", "/abbc", true, true},
		{"/a*c", "/ac", true, true},
		{"/a*c", "/a/c", false, false},
		{"/*a*b*", "/xaxbx", true, true},
		{"/*.git/info", "/repo.git/info", true, true},
		{"/a b", "/a%20b", true, true},
		{"/a%20b", "/a%20b", true, true},
		{"/a:b", "/a%3Ab", true, true},
		{"/a%3Ab", "/a:b", true, true},
		{"/a%2A", "/a*", true, true},
		{"/a%2A", "/ab", false, false},
		{"/é", "/%C3%A9", true, true},
		{"/*", "/%C3%A9", true, true},
		{"/*A9", "/%C3%A9", false, false},
		{"/*é", "/a%C3%A9%C3%A9", true, true},
		{"/secret", "/secret%20", false, true},
	}
	for _, tt := range tests {
		g, err := parsePathGlob(tt.pattern)
		if err != nil {
			t.Fatalf("parsePathGlob(%q): %v", tt.pattern, err)
		}
		if !isCanonical(tt.path) {
			t.Fatalf("path %q of the table is not canonical", tt.path)
		}
		if got := g.match(tt.path); got != tt.want {
			t.Errorf("%s against %s: got %v, want %v", tt.pattern, tt.path, got, tt.want)
		}
		if got := g.loose().matchLoose(tt.path); got != tt.loose {
			t.Errorf("%s loosely against %s: got %v, want %v", tt.pattern, tt.path, got, tt.loose)
		}
	}
}

func TestPathGlobRefuses(t *testing.T) {
	for _, pattern := range []string{
		"", "v1", "*", "**", "/a//b", "/a/../b", "/./a", "/%2e%2e", "/a**", "/**a/b",
		"/a?b", "/a#b", "/[ab]", "/{a,b}", `/a\b`, "/a%2Fb", "/a%5Cb", "/a%00", "/a\x00",
		"/a%2", "/a%zz", "/\xff",
	} {
		if g, err := parsePathGlob(pattern); err == nil {
			t.Errorf("parsePathGlob(%q): got %v, want an error", pattern, g)
		}
	}
}

func TestQueryGlobCrossesSlashes(t *testing.T) {
	for _, tt := range []struct {
		pattern, value string
		want           bool
	}{
		{"*", "", true},
		{"*", "a/b%", true},
		{"git-upload-pack", "git-upload-pack", true},
		{"git-*", "git-receive-pack", true},
		{"a%20b", "a b", false},
		{"1", "11", false},
	} {
		if got := newGlob(tt.pattern).match(tt.value, false); got != tt.want {
			t.Errorf("%q against %q: got %v, want %v", tt.pattern, tt.value, got, tt.want)
		}
	}
}

func TestOverlaps(t *testing.T) {
	tests := []struct {
		a, b string
		want bool
	}{
		{"a.org", "a.org", true},
		{"a.org", "b.org", false},
		{"x.a.org", "*.a.org", true},
		{"a.org", "*.a.org", false},
		{"x.y.a.org", "**.a.org", true},
		{"*.a.org", "*.a.org", true},
		{"*.a.org", "*.org", false},
		{"*.a.org", "**.a.org", true},
		{"*.a.org", "**.org", true},
		{"*.org", "**.a.org", false},
		{"**.a.org", "**.org", true},
		{"**.a.org", "**.b.org", false},
	}
	for _, tt := range tests {
		a, errA := parseHostGlob(tt.a)
		b, errB := parseHostGlob(tt.b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if got := a.overlaps(b); got != tt.want {
			t.Errorf("%s and %s: got %v, want %v", a, b, got, tt.want)
		}
		if got := b.overlaps(a); got != tt.want {
			t.Errorf("%s and %s: got %v, want %v", b, a, got, tt.want)
		}
	}
}
