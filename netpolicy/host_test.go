package netpolicy

import (
	"strings"
	"testing"
)

func TestParseHost(t *testing.T) {
	long63 := strings.Repeat("a", 63)
	name253 := long63 + "." + long63 + "." + long63 + "." + strings.Repeat("a", 61)
	tests := []struct {
		name, in, want string // want "": refused
	}{
		{"name", "example.org", "example.org"},
		{"one label", "db", "db"},
		{"upper case", "ALLOWED.Test", "allowed.test"},
		{"trailing dot", "allowed.test.", "allowed.test"},
		{"digits and hyphens", "a-1.2b.x9", "a-1.2b.x9"},
		{"A-label", "xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"label of 63", long63 + ".org", long63 + ".org"},
		{"name of 253", name253, name253},
		{"name of 253 and dot", name253 + ".", name253},
		{"IPv4", "192.0.2.1", "192.0.2.1"},
		{"IPv6", "2001:DB8::1", "2001:db8::1"},
		{"IPv6 in brackets", "[2001:db8:0:0::1]", "2001:db8::1"},
		{"IPv4-mapped", "::ffff:169.254.169.254", "169.254.169.254"},
		{"IPv4-mapped in hex", "[::ffff:a9fe:a9fe]", "169.254.169.254"},

		{"empty", "", ""},
		{"dot", ".", ""},
		{"two trailing dots", "allowed.test..", ""},
		{"empty label", "allowed..test", ""},
		{"leading dot", ".allowed.test", ""},
		{"name of 254", "a" + name253[1:] + "a", ""},
		{"label of 64", long63 + "a.org", ""},
		{"leading hyphen", "-github.com", ""},
		{"trailing hyphen", "github-.com", ""},
		{"underscore", "a_b.test", ""},
		{"wildcard", "*.test", ""},

		{"decimal IPv4", "2130706433", ""},
		{"hex IPv4", "0x7f000001", ""},
		{"upper hex IPv4", "0X7F.1", ""},
		{"upper hex last part", "a.0X1", ""},
		{"hex last part", "127.0.0.0x1", ""},
		{"bare hex prefix", "a.0x", ""},
		{"octal IPv4", "017700000001", ""},
		{"short IPv4", "127.1", ""},
		{"zero", "0", ""},
		{"leading zero", "127.0.0.01", ""},
		{"five parts", "1.2.3.4.5", ""},
		{"part above 255", "1.2.3.256", ""},
		{"IPv4 with trailing dot", "127.0.0.1.", ""},
		{"name that ends in a number", "example.1", ""},

		{"zone", "fe80::1%eth0", ""},
		{"zone in brackets", "[fe80::1%25eth0]", ""},
		{"name in brackets", "[denied.test]", ""},
		{"IPv4 in brackets", "[127.0.0.1]", ""},
		{"IPv6 then name", "[::1].allowed.test", ""},
		{"empty brackets", "[]", ""},
		{"open bracket", "[::1", ""},
		{"closing bracket", "::1]", ""},
		{"nested brackets", "[[::1]]", ""},
		{"IPv6 with trailing dot", "::1.", ""},
		{"three colons", ":::1", ""},

		{"user info", "allowed.test@denied.test", ""},
		{"backslash", `allowed.test\@denied.test`, ""},
		{"fragment", "allowed.test#@denied.test", ""},
		{"slash", "allowed.test/x", ""},
		{"NUL", "evil.test\x00.allowed.test", ""},
		{"tab", "allowed.test\t", ""},
		{"carriage return", "allowed.test\r", ""},
		{"line feed", "\nallowed.test", ""},
		{"space", "allowed test", ""},
		{"escaped dot", "allowed%2etest", ""},
		{"escaped NUL", "allowed.test%00", ""},
		{"list", "a.test,b.test", ""},

		{"full-width letters", "ａllowed.test", ""},
		{"ideographic full stop", "allowed。test", ""},
		{"zero-width space", "allo\u200bwed.test", ""},
		{"soft hyphen", "allo\u00adwed.test", ""},
		{"Kelvin sign", "\u212aelvin.test", ""},
		{"circled digit", "①.test", ""},
		{"international", "bücher.example", ""},
		{"invalid UTF-8", "a\xff.test", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := ParseHost(tt.in)
			if got := h.String(); got != tt.want {
				t.Errorf("ParseHost(%q): got %q (%v), want %q", tt.in, got, err, tt.want)
			}
			if (err == nil) != (tt.want != "") || h.IsZero() != (err != nil) {
				t.Errorf("ParseHost(%q): got host %v with error %v", tt.in, h, err)
			}
		})
	}
}

func TestParseHostPort(t *testing.T) {
	tests := []struct {
		name, in string
		def      uint16
		host     string // "": refused
		port     uint16
	}{
		{"name and port", "Example.org:443", 0, "example.org", 443},
		{"highest port", "example.org:65535", 0, "example.org", 65535},
		{"default port", "example.org", 80, "example.org", 80},
		{"port beats default", "example.org:8080", 80, "example.org", 8080},
		{"IPv6", "[::1]:80", 0, "::1", 80},
		{"IPv6 with default", "[::1]", 80, "::1", 80},
		{"trailing dot", "example.org.:80", 0, "example.org", 80},

		{"no port", "example.org", 0, "", 0},
		{"empty port", "example.org:", 80, "", 0},
		{"zero", "example.org:0", 80, "", 0},
		{"overflow", "example.org:65537", 0, "", 0},
		{"wide overflow", "example.org:18446744073709551617", 0, "", 0},
		{"leading zero", "example.org:0443", 0, "", 0},
		{"plus", "example.org:+443", 0, "", 0},
		{"minus", "example.org:-1", 0, "", 0},
		{"hex", "example.org:0x50", 0, "", 0},
		{"space", "example.org: 80", 0, "", 0},
		{"full-width digit", "example.org:８０", 0, "", 0},
		{"underscore", "example.org:4_43", 0, "", 0},
		{"service name", "example.org:https", 0, "", 0},
		{"two ports", "example.org:80:443", 0, "", 0},
		{"empty host", ":443", 0, "", 0},
		{"empty", "", 80, "", 0},
		{"bare IPv6", "::1", 80, "", 0},
		{"text after bracket", "[::1]x:80", 0, "", 0},
		{"name in brackets", "[denied.test]:443", 0, "", 0},
		{"path", "/x", 443, "", 0},
		{"user info", "user:80@example.org:443", 0, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, port, err := ParseHostPort(tt.in, tt.def)
			if h.String() != tt.host || port != tt.port || (err == nil) != (tt.host != "") {
				t.Errorf("ParseHostPort(%q): got %q %d (%v), want %q %d", tt.in, h, port, err, tt.host, tt.port)
			}
		})
	}
}

func TestErrorsAreBounded(t *testing.T) {
	_, err := ParseHost(strings.Repeat("\x00", 1<<16))
	if err == nil || len(err.Error()) > 512 {
		t.Errorf("ParseHost of 64 KiB: got an error of %d bytes, want a short one", len(err.Error()))
	}
}
