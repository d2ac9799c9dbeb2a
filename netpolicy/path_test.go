package netpolicy

import (
	"strings"
	"testing"
)

func TestCanonicalPath(t *testing.T) {
	tests := []struct {
		name, in, want string // want "": refused
	}{
		{"root", "/", "/"},
		{"plain", "/v1/models", "/v1/models"},
		{"trailing slash", "/v1/", "/v1/"},
		{"case is kept", "/ADMIN", "/ADMIN"},
		{"escaped letter", "/%61dmin", "/admin"},
		{"escaped capital", "/%41dmin", "/Admin"},
		{"escape in lower case", "/a%3ab", "/a%3Ab"},
		{"reserved stays escaped", "/a%3Bb%2Bc", "/a%3Bb%2Bc"},
		{"reserved stays raw", "/a;b+c:d@e,f=g", "/a;b+c:d@e,f=g"},
		{"escaped space", "/secret%20", "/secret%20"},
		{"UTF-8", "/%c3%a9t%C3%A9", "/%C3%A9t%C3%A9"},
		{"second byte in lower case", "/%C3%a9", "/%C3%A9"},
		{"four bytes", "/%F0%9F%A6%8A", "/%F0%9F%A6%8A"},
		{"visible ASCII is escaped", `/a|b[c]{d}"<>^` + "`", "/a%7Cb%5Bc%5D%7Bd%7D%22%3C%3E%5E%60"},
		{"escaped percent", "/100%25", "/100%25"},
		{"escaped percent and text", "/100%25x", "/100%25x"},
		{"escaped slash in a name", "/@acme%2fsite", "/@acme%2Fsite"},
		{"escaped dot in a name", "/file%2etxt", "/file.txt"},
		{"hidden file", "/.well-known/x", "/.well-known/x"},
		{"three dots", "/a/.../b", "/a/.../b"},
		{"full-width slash in a name", "/AC%EF%BC%8FDC", "/AC%EF%BC%8FDC"},
		{"ellipsis", "/%E2%80%A6", "/%E2%80%A6"},
		{"space in a name", "/a%20b", "/a%20b"},
		{"full-width letters", "/%EF%BC%A1.%EF%BC%A2", "/%EF%BC%A1.%EF%BC%A2"},
		{"dot segment", "/./secret", "/secret"},
		{"dot at the end", "/a/.", "/a/"},
		{"only a dot", "/.", "/"},
		{"double slash", "//secret", "/secret"},
		{"authority look-alike", "//denied.test/x", "/denied.test/x"},
		{"dot and double slash", "/.//secret", "/secret"},
		{"slashes at the end", "/a///", "/a/"},
		{"URL in a path", "/web/https://example.org/", "/web/https:/example.org/"},

		{"empty", "", ""},
		{"no slash", "secret", ""},
		{"asterisk", "*", ""},
		{"dot dot", "/public/../secret", ""},
		{"dot dot at the end", "/public/..", ""},
		{"above the root", "/../x", ""},
		{"escaped dot dot", "/public/%2e%2e/secret", ""},
		{"half escaped", "/public/.%2e/secret", ""},
		{"other half escaped", "/public/%2E./secret", ""},
		{"escaped dot segment", "/a/%2e/b", ""},
		{"twice escaped dots", "/public/%252e%252e/secret", ""},
		{"twice escaped slash", "/public/..%252fsecret", ""},
		{"thrice escaped", "/%25252e", ""},
		{"escape made of escapes", "/%25%32%65", ""},
		{"parameter after dots", "/public/..;/secret", ""},
		{"parameter with value", "/public/..;a=b/secret", ""},
		{"escaped semicolon", "/public/..%3B/secret", ""},
		{"parameter after dot", "/public/.;x/secret", ""},
		{"space after dots", "/public/..%20/secret", ""},
		{"spaces around a dot", "/public/%20.%20/secret", ""},
		{"dots and a space between", "/public/.%20./secret", ""},
		{"query after dots", "/public/..%3Fx", ""},
		{"fragment after dots", "/public/..%23x/secret", ""},
		{"full-width dots", "/public/%EF%BC%8E%EF%BC%8E/secret", ""},
		{"a full-width dot", "/public/.%ef%bc%8e/secret", ""},
		{"two dot leader", "/public/%E2%80%A5/secret", ""},
		{"full-width slash", "/public/..%EF%BC%8Fsecret", ""},
		{"division slash", "/public/x%E2%88%95..%E2%88%95..%E2%88%95secret", ""},
		{"full-width backslash", "/public/..%EF%BC%BCsecret", ""},
		{"yen sign", "/public/..%C2%A5secret", ""},
		{"no-break space after dots", "/public/..%C2%A0/secret", ""},
		{"escaped slash", "/public/..%2fsecret", ""},
		{"escaped slash at the start of a segment", "/%2Fb", ""},
		{"escaped slash at the end of a segment", "/a%2f", ""},
		{"escaped slashes in a row", "/a%2F%2Fb", ""},
		{"dots before an escaped slash", "/a/..%2Fb", ""},
		{"dots after an escaped slash", "/a%2f..", ""},
		{"dots between escaped slashes", "/a%2F..%2Fb", ""},
		{"dot between escaped slashes", "/a%2F.%2Fb", ""},
		{"escaped dots after an escaped slash", "/a%2f%2e%2e", ""},
		{"parameter dots after an escaped slash", "/a%2F..;x", ""},
		{"escaped slash and backslash", "/a%2Fb%5Cc", ""},
		{"twice escaped slash in a name", "/a%252Fb", ""},
		{"escaped backslash", "/public%5c..%5csecret", ""},
		{"backslash", `/public\..\secret`, ""},
		{"NUL", "/a\x00.png", ""},
		{"escaped NUL", "/a%00.png", ""},
		{"escaped line feed", "/a%0Ab", ""},
		{"escaped DEL", "/a%7F", ""},
		{"escaped C1 control", "/a%C2%85", ""},
		{"overlong dots", "/%c0%ae%c0%ae/secret", ""},
		{"overlong slash", "/a%e0%80%afb", ""},
		{"surrogate", "/%ED%A0%80", ""},
		{"lone continuation", "/%80", ""},
		{"cut short", "/%C3", ""},
		{"cut by a letter", "/%C3a", ""},
		{"raw UTF-8", "/é", ""},
		{"raw space", "/a b", ""},
		{"tab", "/secret\t", ""},
		{"carriage return", "/a\r", ""},
		{"question mark", "/a?b", ""},
		{"fragment", "/a#b", ""},
		{"broken escape", "/a%2", ""},
		{"not hex", "/a%zz", ""},
		{"percent u", "/%u002e", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := CanonicalPath(tt.in)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Fatalf("CanonicalPath(%q): got %q (%v), want %q", tt.in, got, err, tt.want)
			}
			if err == nil && !isCanonical(got) {
				t.Errorf("CanonicalPath(%q): got %q, which is not canonical", tt.in, got)
			}
			if isCanonical(tt.in) != (tt.in == tt.want && err == nil) {
				t.Errorf("isCanonical(%q): got %v with form %q", tt.in, isCanonical(tt.in), tt.want)
			}
		})
	}
}

func TestSplitTarget(t *testing.T) {
	tests := []struct {
		name, in, path, query string
		ok                    bool
	}{
		{"no query", "/a", "/a", "", true},
		{"query", "/%61?x=1&y=%2F", "/a", "x=1&y=%2F", true},
		{"dots in the query", "/public?x=/../secret", "/public", "x=/../secret", true},
		{"second question mark", "/a?b?c", "/a", "b?c", true},
		{"empty query", "/a?", "/a", "", true},
		{"semicolon", "/a?x=1;y=2", "", "", false},
		{"fragment", "/a?x#y", "", "", false},
		{"space", "/a?x y", "", "", false},
		{"raw UTF-8", "/a?é", "", "", false},
		{"escaped NUL", "/a?x=%00", "", "", false},
		{"broken escape", "/a?x=%4", "", "", false},
		{"absolute form", "http://denied.test/", "", "", false},
		{"authority form", "denied.test:443", "", "", false},
		{"asterisk", "*", "", "", false},
		{"empty", "", "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path, query, err := SplitTarget(tt.in)
			if path != tt.path || query != tt.query || (err == nil) != tt.ok {
				t.Errorf("SplitTarget(%q): got %q %q (%v), want %q %q", tt.in, path, query, err, tt.path, tt.query)
			}
		})
	}
}

func TestParseQueryKeepsDuplicates(t *testing.T) {
	q, err := ParseQuery("a=1&%61=2&b&c=x+y%20z&&a=")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(q["a"], "|"), "1|2|"; got != want {
		t.Errorf("values of a: got %q, want %q", got, want)
	}
	if got, want := strings.Join(q["c"], "|"), "x y z"; got != want {
		t.Errorf("values of c: got %q, want %q", got, want)
	}
	if got := q["b"]; len(got) != 1 || got[0] != "" {
		t.Errorf("values of b: got %q, want one empty value", got)
	}
}
