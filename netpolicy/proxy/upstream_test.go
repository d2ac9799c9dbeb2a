package proxy

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"
)

// Old TLS is refused on both sides (corpus D75).
func TestOldTLS(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 443, &echo{})
	for version, ok := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true} {
		c, err := net.Dial("tcp", w.door("api.example.org", 443))
		if err != nil {
			t.Fatal(err)
		}
		tc := tls.Client(c, &tls.Config{ServerName: "api.example.org", RootCAs: poolOf(t, w.srv.Authority), MinVersion: tls.VersionTLS10, MaxVersion: version})
		if err := tc.Handshake(); (err == nil) != ok {
			t.Errorf("client with %s: got %v, want success %v", tls.VersionName(version), err, ok)
		}
		_ = tc.Close()
	}
	l := w.listen()
	old := w.serverTLS()
	old.MaxVersion = tls.VersionTLS11
	go serveTLS(l, old)
	t.Cleanup(func() { _ = l.Close() })
	w.publish("other.example.org", 443, l.Addr().String())
	w.wantUpstreamFailure("other.example.org", "")
}

func serveTLS(l net.Listener, config *tls.Config) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		tc := tls.Server(c, config)
		_ = tc.Handshake()
		_ = tc.Close()
	}
}

func (w *world) wantUpstreamFailure(host, reason string) {
	w.t.Helper()
	got := w.raw(host, 443, host, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
	if !strings.Contains(statusLine(got), "502") || !strings.Contains(got, `"error":"upstream_failed"`) || !strings.Contains(got, reason) {
		w.t.Errorf("got %q, want 502 upstream_failed with %q", got, reason)
	}
}

// Certificates of servers are verified by name, chain and time (corpus D76).
func TestUpstreamCertificate(t *testing.T) {
	past := func() time.Time { return time.Now().Add(-60 * 24 * time.Hour) }
	for name, serve := range map[string]func(w *world, config *tls.Config){
		"wrong name": func(w *world, config *tls.Config) {
			good := config.GetCertificate
			config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return good(&tls.ClientHelloInfo{ServerName: "wrong.example.org"})
			}
		},
		"unknown authority": func(w *world, _ *tls.Config) {
			stranger, err := NewAuthority(nil)
			if err != nil {
				t.Fatal(err)
			}
			w.outside = stranger
		},
		"the run's own authority": func(w *world, _ *tls.Config) { w.outside = w.srv.Authority },
		"expired": func(w *world, _ *tls.Config) {
			expired, err := NewAuthority(past)
			if err != nil {
				t.Fatal(err)
			}
			w.outside = expired
			w.srv.RootCAs = poolOf(t, expired)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			config := w.serverTLS()
			serve(w, config)
			l := w.listen()
			go serveTLS(l, config)
			t.Cleanup(func() { _ = l.Close() })
			w.publish("other.example.org", 443, l.Addr().String())
			w.wantUpstreamFailure("other.example.org", "certificate is not valid")
		})
	}
}
