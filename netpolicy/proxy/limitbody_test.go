package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// boundedNetwork allows posts of 1000 bytes, and only with a field.
func boundedNetwork() policy.Network {
	return policy.Network{Rules: []policy.Rule{{
		Name: "bounded", Host: "api.example.org", AllowSet: true, Pos: policy.Pos{File: "p.yaml", Line: 3, Col: 5},
		Allow: []policy.Match{
			{Methods: []string{"POST"}, Paths: []string{"/body"}, MaxBody: 1000},
			{Methods: []string{"GET"}, Paths: []string{"/field"}, Headers: []string{"X-Ticket"}},
		},
	}}}
}

// unsized hides how long a body is.
type unsized struct{ io.Reader }

// A body that turns out longer than its rule allows is cut, so that the server
// does not take it for whole, and the client learns why.
func TestBodyLimit(t *testing.T) {
	cases := []struct {
		name string
		body io.Reader
		want int
	}{
		{"control: nothing", nil, http.StatusOK},
		{"control: just as long", bytes.NewReader(make([]byte, 1000)), http.StatusOK},
		{"control: just as long, not said", unsized{bytes.NewReader(make([]byte, 1000))}, http.StatusOK},
		{"one byte more", bytes.NewReader(make([]byte, 1001)), http.StatusForbidden},
		{"one byte more, not said", unsized{bytes.NewReader(make([]byte, 1001))}, http.StatusRequestEntityTooLarge},
		{"much more, not said", unsized{bytes.NewReader(make([]byte, 300_000))}, http.StatusRequestEntityTooLarge},
	}
	for _, h2 := range []bool{false, true} {
		for _, c := range cases {
			t.Run(fmt.Sprintf("h2 %v %s", h2, c.name), func(t *testing.T) {
				if s, ok := c.body.(unsized); ok {
					_, _ = s.Reader.(*bytes.Reader).Seek(0, io.SeekStart)
				} else if s, ok := c.body.(*bytes.Reader); ok {
					_, _ = s.Seek(0, io.SeekStart)
				}
				w := newWorld(t, boundedNetwork())
				type seen struct {
					n   int64
					err error
				}
				server := make(chan seen, 1)
				w.serve("api.example.org", 443, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					n, err := io.Copy(io.Discard, r.Body)
					server <- seen{n, err}
				}))
				resp, err := w.client("api.example.org", 443, h2).Post("https://api.example.org/body", "text/plain", c.body)
				if err != nil {
					t.Fatal(err)
				}
				body := readBody(t, resp)
				if resp.StatusCode != c.want {
					t.Fatalf("got %d %s, want %d", resp.StatusCode, body, c.want)
				}
				if c.want == http.StatusOK {
					if got := <-server; got.err != nil {
						t.Errorf("server: got %v", got.err)
					}
					return
				}
				if !strings.Contains(body, `"rule":"bounded"`) || !strings.Contains(body, `"error":"policy_denied"`) {
					t.Errorf("got %s, want a denial that names the rule", body)
				}
				w.wantEvent("denial", func(e audit.Event) bool {
					return e.Kind == audit.KindRequest && e.Verdict == audit.Deny && e.Rule == "bounded" && e.Status == c.want && e.Path == "/body"
				})
				if c.want == http.StatusForbidden {
					return // nothing was sent
				}
				if got := <-server; got.err == nil {
					t.Errorf("server: got %d bytes as a whole body, want an error", got.n)
				}
			})
		}
	}
}

// An answer that began before the body was too long is cut with it.
func TestBodyLimitAfterTheAnswerBegan(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", h2), func(t *testing.T) {
			w := newWorld(t, boundedNetwork())
			w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				control := http.NewResponseController(rw)
				_ = control.EnableFullDuplex()
				_ = control.Flush()
				if _, err := io.Copy(io.Discard, r.Body); err == nil {
					_, _ = io.WriteString(rw, "whole")
				}
			}))
			body, send := io.Pipe()
			req, err := http.NewRequest(http.MethodPost, "https://api.example.org/body", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := w.client("api.example.org", 443, h2).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for err := error(nil); err == nil; {
					_, err = send.Write(make([]byte, 500))
				}
			}()
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			_ = body.Close()
			if err == nil {
				t.Errorf("got %q as a whole answer, want an error", b)
			}
			w.wantEvent("denial", func(e audit.Event) bool { return e.Status == http.StatusRequestEntityTooLarge })
		})
	}
}

// A clause can ask for a field to be there.
func TestHeaderPresence(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, boundedNetwork())
		w.serve("api.example.org", 443, &echo{})
		client := w.client("api.example.org", 443, h2)
		for field, want := range map[string]int{"X-Ticket": http.StatusOK, "X-Other": http.StatusForbidden} {
			req, err := http.NewRequest(http.MethodGet, "https://api.example.org/field", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(field, "1")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if body := readBody(t, resp); resp.StatusCode != want {
				t.Errorf("h2 %v, %s: got %d %s, want %d", h2, field, resp.StatusCode, body, want)
			}
		}
	}
}

// Both directions of a request move at the same time, piece by piece.
func TestBothDirections(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2 %v", h2), func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.serve("api.example.org", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				control := http.NewResponseController(rw)
				_ = control.EnableFullDuplex()
				_ = control.Flush()
				buf := make([]byte, 1)
				for {
					n, err := r.Body.Read(buf)
					_, _ = rw.Write(bytes.ToUpper(buf[:n]))
					_ = control.Flush()
					if err != nil {
						return
					}
				}
			}))
			body, send := io.Pipe()
			req, err := http.NewRequest(http.MethodPost, "https://api.example.org/public/a", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := w.client("api.example.org", 443, h2).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			late := time.AfterFunc(10*time.Second, func() { _ = send.CloseWithError(io.ErrUnexpectedEOF) })
			defer late.Stop()
			got := make([]byte, 1)
			for _, c := range "abc" {
				if _, err := io.WriteString(send, string(c)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != strings.ToUpper(string(c)) {
					t.Fatalf("got %q %v, want %q back before more is sent", got, err, c)
				}
			}
			_ = send.Close()
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
				t.Errorf("end: got %q %v, want the end", rest, err)
			}
		})
	}
}
