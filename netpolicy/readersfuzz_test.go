package netpolicy

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hermes-wrap/hermes-wrap/test/readers"
)

// FuzzReaders: Python, Node and curl read host, port, path and query of whatever
// is accepted as we do, as it is written and in our form; and they keep our form
// as it is, so that what was judged is what is sent and what a server gets.
func FuzzReaders(f *testing.F) {
	for _, authority := range []string{
		"api.example.org", "API.example.org.", "a:80", "a:8080", "127.0.0.1", "0127.0.0.1", "127.1", "2130706433", "0x7f.1", "[::1]:443",
		"[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "a@b", "a:80@b", "a%2eb", "a..b", "a_b.org", "xn--bcher-kva.example", "1.2.3.4.", "a:", "a:080", "e\u0301.org",
	} {
		f.Add(authority, "/x")
	}
	for _, target := range []string{
		"/", "/a/../b", "/a/%2e%2e/b", "/a%2Fb", "//b/c", "/a;x=1/b", "/%C3%A9", "/%c3%a9?x=%20", "/a?b?c", "/a#b", `/a\b`, "/a%5cb", "/a b", "/a\tb",
		"/%252e", "/a/./b", "/{a}", "/a|b", "/a'b", "/~a", "/%7Ea", "/?a=1&a=2", "/@x:1/", "/a?'<>\"", "/a%00",
	} {
		f.Add("api.example.org", target)
	}
	all := readers.URLs(f)
	f.Fuzz(func(t *testing.T, authority, target string) {
		host, port, err := ParseHostPort(authority, 80)
		if err != nil || len(authority)+len(target) > 4096 {
			return
		}
		path, query, err := SplitTarget(target)
		if err != nil {
			return
		}
		values, err := ParseQuery(query)
		if err != nil {
			t.Fatalf("ParseQuery(%q) after SplitTarget: %v", query, err)
		}
		ours := strings.Join([]string{"http://", bracketed(host), ":", strconv.Itoa(int(port)), path}, "")
		decoded, err := url.PathUnescape(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			for _, text := range []string{"http://" + authority + target, ours} {
				u := r.URL(t, text)
				if !u.Accepted {
					// Node checks that labels of international names are well formed.
					if text == ours && !strings.Contains(text, "xn--") {
						t.Fatalf("%s refuses %q", r.Name, text)
					}
					continue
				}
				theirs, err := ParseHost(u.Host)
				if err != nil || theirs != host || u.Port != int(port) {
					t.Fatalf("%s reads %q as host %q port %d, we as %q %d (%v)", r.Name, text, u.Host, u.Port, host, port, err)
				}
				if p, err := CanonicalPath(u.Path); err != nil || p != path || text == ours && u.Path != path {
					t.Fatalf("%s reads %q as path %q, we as %q (%v)", r.Name, text, u.Path, path, err)
				}
				if text == ours && string(u.Decoded) != decoded {
					t.Fatalf("%s decodes the path of %q as %q, want %q", r.Name, text, u.Decoded, decoded)
				}
				if text != ours {
					if q, err := ParseQuery(u.Query); err != nil || !cmp.Equal(q, values) {
						t.Fatalf("%s reads %q as query %q, we as %q (%v)", r.Name, text, u.Query, query, err)
					}
				}
			}
		}
	})
}
