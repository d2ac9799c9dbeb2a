package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

const testToken = "0123456789abcdef"

// explicitDoor gives the address of an explicit proxy.
func (w *world) explicitDoor(token string) string {
	w.t.Helper()
	return w.explicitOn(w.listen(), token)
}

func (w *world) explicitOn(l net.Listener, token string) string {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.srv.ServeExplicit(ctx, l, token) })
	w.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return l.Addr().String()
}

func basic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(ExplicitUser+":"+token))
}

// explicitWorld serves the hosts of testNetwork.
func explicitWorld(t *testing.T) *world {
	w := newWorld(t, testNetwork())
	say := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Proxy-") {
				t.Errorf("the server got %s", name)
			}
		}
		fmt.Fprintf(rw, "%s %s", r.Host, r.URL.Path)
	})
	for _, host := range []string{"api.example.org", "other.example.org", "secret.example.org"} {
		w.serve(host, 80, say)
		w.serve(host, 443, say)
	}
	w.serve("passed.example.org", 443, say)
	w.serveRaw("db.example.org", 5432, func(c net.Conn) {
		b := make([]byte, 4)
		if _, err := io.ReadFull(c, b); err == nil {
			_, _ = c.Write(append([]byte("db:"), b...))
		}
	})
	return w
}

func TestExplicitProxy(t *testing.T) {
	w := explicitWorld(t)
	door := w.explicitDoor(testToken)
	roots := poolOf(t, w.srv.Authority)
	roots.AppendCertsFromPEM(w.outside.CertPEM()) // passed.example.org shows its own
	client := func(token string) *http.Client {
		tr := &http.Transport{
			Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: door, User: url.UserPassword(ExplicitUser, token)}),
			TLSClientConfig: &tls.Config{RootCAs: roots},
		}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	ours := client(testToken)
	cases := []struct {
		name, url string
		client    *http.Client
		status    int // 0: an error that says wants
		wants     string
	}{
		{"allowed, http", "http://api.example.org/public/a", ours, 200, "api.example.org /public/a"},
		{"another host on the same proxy connection", "http://other.example.org/b", ours, 200, "other.example.org /b"},
		{"denied path, http", "http://api.example.org/private", ours, 403, "policy_denied"},
		{"denied host, http", "http://secret.example.org/", ours, 403, "policy_denied"},
		{"allowed, inspected", "https://api.example.org/public/a", ours, 200, "api.example.org /public/a"},
		{"denied path, inspected", "https://api.example.org/private", ours, 403, "policy_denied"},
		{"allowed, passed", "https://passed.example.org/x", ours, 200, "passed.example.org /x"},
		{"denied host, https", "https://secret.example.org/", ours, 403, "policy_denied"},
		{"loopback", "http://127.0.0.1/", ours, 403, "policy_denied"},
		{"wrong token, http", "http://api.example.org/public/a", client("x"), 407, "token"},
		{"wrong token, https", "https://api.example.org/public/a", client("x"), 0, "Proxy Authentication Required"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			resp, err := c.client.Get(c.url)
			if c.status == 0 {
				if err == nil || !strings.Contains(err.Error(), c.wants) {
					t.Errorf("got %v, want an error with %q", err, c.wants)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if body := readBody(t, resp); resp.StatusCode != c.status || !strings.Contains(body, c.wants) {
				t.Errorf("got %d %s, want %d with %q", resp.StatusCode, body, c.status, c.wants)
			}
		})
	}
	w.wantEvent("the denied host", func(e audit.Event) bool { return e.Verdict == audit.Deny && e.Host == "secret.example.org" })
	w.wantNoFault()
}

func TestExplicitProxyRaw(t *testing.T) {
	w := explicitWorld(t)
	door := w.explicitDoor(testToken)
	auth := "Proxy-Authorization: " + basic(testToken) + "\r\n"
	cases := []struct{ name, send, want string }{
		{"no token", "CONNECT api.example.org:443 HTTP/1.1\r\nHost: api.example.org:443\r\n\r\n", "HTTP/1.1 407"},
		{"two tokens", "CONNECT api.example.org:443 HTTP/1.1\r\n" + auth + auth + "\r\n", "HTTP/1.1 407"},
		{"no token, absolute", "GET http://api.example.org/public/a HTTP/1.1\r\nHost: api.example.org\r\n\r\n", "HTTP/1.1 407"},
		{"bytes before the answer", "CONNECT db.example.org:5432 HTTP/1.1\r\n" + auth + "\r\nping", "HTTP/1.1 400"},
		{"a body", "CONNECT db.example.org:5432 HTTP/1.1\r\nContent-Length: 4\r\n" + auth + "\r\n", "HTTP/1.1 400"},
		{"no port", "CONNECT db.example.org HTTP/1.1\r\n" + auth + "\r\n", "HTTP/1.1 400"},
		{"not a proxy request", "GET /public/a HTTP/1.1\r\nHost: api.example.org\r\n" + auth + "\r\n", "HTTP/1.1 400"},
		{"two hosts", "GET http://api.example.org/ HTTP/1.1\r\nHost: other.example.org\r\n" + auth + "\r\n", "HTTP/1.1 400"},
		{"https without CONNECT", "GET https://api.example.org/ HTTP/1.1\r\nHost: api.example.org\r\n" + auth + "\r\n", "HTTP/1.1 400"},
		{"raw bytes without CONNECT", "GET http://db.example.org:5432/ HTTP/1.1\r\nHost: db.example.org:5432\r\n" + auth + "\r\n", "HTTP/1.1 403"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := statusLine(exchangeRaw(t, door, c.send)); !strings.HasPrefix(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if _, dials := w.seen(); len(dials) > 0 {
		t.Errorf("dials: got %v, want none", dials)
	}
}

func exchangeRaw(t *testing.T, door, send string) string {
	t.Helper()
	c, err := net.Dial("tcp", door)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(c)
	return string(b)
}

func TestExplicitProxyTunnel(t *testing.T) {
	w := explicitWorld(t)
	c, err := net.Dial("tcp", w.explicitDoor(testToken))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "CONNECT db.example.org:5432 HTTP/1.1\r\nProxy-Authorization: %s\r\n\r\n", basic(testToken))
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %v, %v, want 200", resp, err)
	}
	_, _ = io.WriteString(c, "ping")
	b := make([]byte, 7)
	if _, err := io.ReadFull(in, b); err != nil || string(b) != "db:ping" {
		t.Errorf("got %q, %v, want the server's bytes", b, err)
	}
}

func TestExplicitProxyWithoutToken(t *testing.T) {
	w := explicitWorld(t)
	door := w.explicitDoor("")
	got := exchangeRaw(t, door, "CONNECT api.example.org:443 HTTP/1.1\r\nProxy-Authorization: "+basic("")+"\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 407") {
		t.Errorf("got %q, want 407: an empty token opens nothing", statusLine(got))
	}
}
