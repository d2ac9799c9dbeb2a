package proxy

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// The proxy speaks no SOCKS: what would be one is refused like any other
// foreign bytes, whatever host it names, and nobody is asked or dialled
// (corpus C31).
func TestSOCKS(t *testing.T) {
	name := func(n string) string { return string(rune(len(n))) + n }
	greetings := map[string]string{
		"socks5, allowed name": "\x05\x01\x00\x05\x01\x00\x03" + name("api.example.org") + "\x00\x50",
		"socks5, NUL in name":  "\x05\x01\x00\x05\x01\x00\x03" + name("evil.test\x00.example.org") + "\x00\x50",
		"socks5, empty name":   "\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50",
		"socks5, long name":    "\x05\x01\x00\x05\x01\x00\x03\xff" + strings.Repeat("a", 255) + "\x00\x50",
		"socks4":               "\x04\x01\x00\x50\x5d\xb8\xd7\x01user\x00",
		"socks4a":              "\x04\x01\x00\x50\x00\x00\x00\x01\x00api.example.org\x00",
	}
	w := explicitWorld(t)
	door := w.explicitDoor(testToken)
	control := exchangeRaw(t, door, "GET http://api.example.org/public/a HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\nProxy-Authorization: "+basic(testToken)+"\r\n\r\n")
	if !strings.HasPrefix(control, "HTTP/1.1 200") {
		t.Fatalf("control: got %q, want 200", statusLine(control))
	}
	lookups, dials := w.seen()
	t.Run("refused", func(t *testing.T) {
		for where, send := range map[string]func(text string) string{
			"spoken to":         func(text string) string { return exchangeRaw(t, door, text) },
			"captured, http":    func(text string) string { return w.raw("api.example.org", 80, "", text) },
			"captured, any tcp": func(text string) string { return w.raw("api.example.org", 443, "", text) },
		} {
			for what, text := range greetings {
				t.Run(where+", "+what, func(t *testing.T) {
					t.Parallel()
					if got := send(text); strings.HasPrefix(got, "\x05") || strings.HasPrefix(got, "\x00") {
						t.Errorf("got %q, want no answer of SOCKS", got)
					}
				})
			}
		}
	})
	if l, d := w.seen(); len(l) != len(lookups) || len(d) != len(dials) {
		t.Errorf("outside: got %v %v, want nothing beyond the control's", l, d)
	}
	w.wantNoFault()
}

// An answer does not lead the client to another protocol or port, which would
// be UDP or a name of the server's choice (corpus C09).
func TestAltSvcIsDropped(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, testNetwork())
		w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Alt-Svc", `h3=":443"; ma=86400, h2="other.example:8443"`)
			rw.Header().Set("X-Kept", "yes")
			_, _ = io.WriteString(rw, "ok")
		}))
		resp, err := w.client("api.example.org", 443, h2).Get("https://api.example.org/public/a")
		if err != nil {
			t.Fatal(err)
		}
		if body := readBody(t, resp); body != "ok" || resp.Header.Get("X-Kept") != "yes" {
			t.Errorf("control, h2 %v: got %q with %v, want the answer", h2, body, resp.Header)
		}
		if got := resp.Header.Values("Alt-Svc"); len(got) > 0 {
			t.Errorf("h2 %v: got %q, want no Alt-Svc", h2, got)
		}
	}
}

// A host's rule is for its ports and no others (corpus C33).
func TestOtherPorts(t *testing.T) {
	w := explicitWorld(t)
	door := w.explicitDoor(testToken)
	connect := func(target string) string {
		return exchangeRaw(t, door, "CONNECT "+target+" HTTP/1.1\r\nProxy-Authorization: "+basic(testToken)+"\r\n\r\n")
	}
	for _, port := range []string{"22", "25", "6379", "8443", "1", "65535"} {
		// The proxy begins a tunnel, so that a client of HTTP can be told why not,
		// and ends it.
		if _, beyond, _ := strings.Cut(connect("api.example.org:"+port), "\r\n\r\n"); beyond != "" {
			t.Errorf("port %s: got %q, want nothing", port, beyond)
		}
		number, _ := strconv.Atoi(port)
		w.wantEvent("port "+port, func(e audit.Event) bool { return e.Verdict == audit.Deny && int(e.Port) == number })
	}
	for _, target := range []string{"api.example.org:0", "api.example.org:65537", "api.example.org:0443", "api.example.org:80:443", "api.example.org:", "[denied.test]:443"} {
		if got := statusLine(connect(target)); !strings.HasPrefix(got, "HTTP/1.1 400") {
			t.Errorf("%s: got %q, want 400", target, got)
		}
	}
	if _, dials := w.seen(); len(dials) > 0 {
		t.Errorf("dials: got %v, want none", dials)
	}
	// The control: the port that the rule names.
	got := exchangeRaw(t, w.door("db.example.org", 5432), "ping")
	if got != "db:ping" {
		t.Errorf("control: got %q, want the server's answer", got)
	}
}
