package web

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// badOrigins misbehave. Their first path segment says how, where there are
// several ways.
var badOrigins = map[string]script{
	"bad-101.test":     unasked101,
	"bad-answer.test":  badAnswer,
	"bad-stream.test":  badStream,
	"bad-sse.test":     badEvents,
	"bad-llm.test":     badEvents,
	"bad-expired.test": (*World).plain,
	"bad-self.test":    (*World).plain,
	"bad-name.test":    (*World).plain,
	"bad-root.test":    (*World).plain,
	"bad-tls10.test":   (*World).plain,
	"bad-tls11.test":   (*World).plain,
	"bad-mtls.test":    (*World).plain,
	"bad-ws.test":      badWebSocket,
	"bad-mcp.test":     badTool,
	"sink.test":        sink,
}

// plain answers like any origin; the certificate is what is bad.
func (*World) plain(v *visit) { v.answerAll() }

// tlsConfig is what an origin does in a handshake.
func (w *World) tlsConfig(name string) *tls.Config {
	c := &tls.Config{NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS10} //nolint:gosec // lax on purpose
	switch name {
	case "bad-tls10.test":
		c.MaxVersion = tls.VersionTLS10
		c.CipherSuites = oldSuites
	case "bad-tls11.test":
		c.MaxVersion = tls.VersionTLS11
		c.CipherSuites = oldSuites
	case "bad-mtls.test":
		c.ClientAuth = tls.RequestClientCert
	case "mtls.test":
		c.ClientAuth = tls.RequireAnyClientCert
	}
	c.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return w.certificate(cmp.Or(name, h.ServerName))
	}
	return c
}

// oldSuites are those that TLS 1.0 has, with keys of elliptic curves.
var oldSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA}

// certificate gives a good certificate, but for the names that have a bad one.
func (w *World) certificate(name string) (*tls.Certificate, error) {
	switch name {
	case "bad-expired.test":
		return w.CA.leaf(name, "expired", func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
		})
	case "bad-name.test":
		return w.CA.leaf("other.test", "", nil)
	case "bad-self.test":
		return selfSigned(name)
	case "bad-root.test":
		other, err := NewAuthority()
		if err != nil {
			return nil, err
		}
		return other.leaf(name, "", nil)
	}
	return w.CA.leaf(name, "", nil)
}

func selfSigned(name string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: serial(), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// head reads one request's head and gives its target.
func (v *visit) head() (method, target string, ok bool) {
	_ = v.SetReadDeadline(time.Now().Add(20 * time.Second))
	start := len(v.kept())
	for !bytes.Contains(v.kept()[start:], []byte("\r\n\r\n")) {
		if _, err := v.read(); err != nil {
			return "", "", false
		}
	}
	words := bytes.Fields(v.kept()[start:])
	if len(words) < 2 {
		return "", "", false
	}
	v.w.remember(v.name + " " + string(words[0]) + " " + string(words[1]))
	return string(words[0]), string(words[1]), true
}

// unasked101 switches protocols although nobody asked, and reads what comes
// through.
func unasked101(_ *World, v *visit) {
	if _, _, ok := v.head(); !ok {
		return
	}
	_, _ = v.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n"))
	start := len(v.kept())
	_ = v.SetReadDeadline(time.Now().Add(3 * time.Second))
	for {
		b, err := v.read()
		if err != nil {
			return
		}
		// The rest of a body and requests of others are no tunnel.
		if len(v.kept()) > start && bytes.Contains(b, []byte("tunnel")) {
			v.note("bytes through a tunnel that nobody asked for")
		}
		_, _ = v.Write([]byte("tunnelled"))
	}
}

// smuggled is an answer that belongs to nobody's request.
const smuggled = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nSMUGGLED"

// badAnswers are whole answers outside of HTTP's rules, by path. Some are large,
// and most processes of this program never give one.
var badAnswers = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"/two-lengths": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 103\r\n\r\nok" + smuggled,
		"/both":        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"/on-204":      "HTTP/1.1 204 No Content\r\nContent-Length: 103\r\n\r\n" + smuggled,
		"/on-304":      "HTTP/1.1 304 Not Modified\r\n\r\n" + smuggled,
		"/on-head":     "HTTP/1.1 200 OK\r\nContent-Length: 98\r\n\r\n" + smuggled,
		"/long":        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + smuggled,
		"/bare-cr":     "HTTP/1.1 200 OK\r\nX-Bad: a\rSet-Cookie: split=1\r\nContent-Length: 2\r\n\r\nok",
		"/bare-lf":     "HTTP/1.1 200 OK\nX-Bad: a\nContent-Length: 2\n\nok" + smuggled,
		"/folded":      "HTTP/1.1 200 OK\r\nX-Bad: a\r\n Set-Cookie: split=1\r\nContent-Length: 2\r\n\r\nok",
		"/nul":         "HTTP/1.1 200 OK\r\nX-Bad: a\x00b\r\nContent-Length: 2\r\n\r\nok",
		"/space-colon": "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok" + smuggled,
		"/odd-te":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\nContent-Length: 2\r\n\r\nok" + smuggled,
		"/two-te":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + smuggled,
		"/plus-length": "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok" + smuggled,
		"/status":      "HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\nok" + smuggled,
		"/status-line": "HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\nok" + smuggled,
		"/chunk":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff2\r\nok\r\n0\r\n\r\n" + smuggled,
		"/cut":         "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok",
		"/cut-chunk":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
		"/late-101":    "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nUpgrade: raw\r\nConnection: upgrade\r\n\r\nSMUGGLED",
		"/too-many-1":  strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n", 100_000),
		"/big-head":    "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Big: "+strings.Repeat("x", 1000)+"\r\n", 20_000) + "Content-Length: 2\r\n\r\nok",
		"/h3":          "HTTP/1.1 200 OK\r\nAlt-Svc: h3=\":443\"\r\nContent-Length: 2\r\n\r\nok",
	}
})

// badAnswer answers every request with the answer that its path names.
func badAnswer(_ *World, v *visit) {
	for {
		_, target, ok := v.head()
		if !ok {
			return
		}
		path, _, _ := strings.Cut(target, "?")
		b, known := badAnswers()[path]
		if !known {
			b = string(plainAnswer("200 OK", "text/plain", "fine"))
		}
		if _, err := v.Write([]byte(b)); err != nil {
			return
		}
		if strings.HasPrefix(path, "/cut") {
			return
		}
	}
}

// badStream sends without an end, or slowly.
func badStream(_ *World, v *visit) {
	_, target, ok := v.head()
	if !ok {
		return
	}
	switch path, _, _ := strings.Cut(target, "?"); path {
	case "/slow": // an event at a time, then a cut
		_, _ = v.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"))
		for i := range 4 {
			event := fmt.Sprintf("data: event %d\n\n", i)
			if _, err := fmt.Fprintf(v, "%x\r\n%s\r\n", len(event), event); err != nil {
				return
			}
			time.Sleep(150 * time.Millisecond)
		}
	case "/events":
		_, _ = v.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"))
		v.flood([]byte("data: " + strings.Repeat("x", 4000) + "\n\n"))
	case "/sleep": // never answers
		_ = v.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, _ = v.read()
	default:
		_, _ = v.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n"))
		v.flood(bytes.Repeat([]byte("x"), 64<<10))
	}
}

// flood writes until the other side goes, 1 GiB at most.
func (v *visit) flood(piece []byte) {
	_ = v.SetWriteDeadline(time.Now().Add(30 * time.Second))
	for sent := 0; sent < 1<<30; sent += len(piece) {
		if _, err := v.Write(piece); err != nil {
			return
		}
	}
}

// badEvents are streams of a model's provider that go wrong. The request's
// text says which: it holds "case:NAME".
func badEvents(_ *World, v *visit) {
	if _, _, ok := v.head(); !ok {
		return
	}
	_ = v.SetReadDeadline(time.Now().Add(2 * time.Second))
	for !bytes.Contains(v.kept(), []byte("case:")) {
		if _, err := v.read(); err != nil {
			return
		}
	}
	v.analyse()
	switch {
	case bytes.Contains(v.kept(), []byte("case:error")):
		_, _ = v.Write(plainAnswer("500 Internal Server Error", "application/json", "{\"error\":{\"message\":\"boom\n\ndata: FORGED\n\ndata: [DONE]\n\n\"}}"))
	case bytes.Contains(v.kept(), []byte("case:cut")):
		_, _ = v.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"))
		event := `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"rm","arguments":"{\"path\":\"/tmp"}}]}}]}` + "\n\n"
		_, _ = fmt.Fprintf(v, "%x\r\n%s\r\n", len(event), event)
	case bytes.Contains(v.kept(), []byte("case:endless")):
		_, _ = v.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"))
		v.flood([]byte(`data: {"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 8000) + `"}}]}` + "\n\n"))
	default:
		_, _ = v.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"fine\"}}]}\n\ndata: [DONE]\n\n"))
	}
}

// sink takes as many bytes as are announced, keeps none, and says how many came.
func sink(_ *World, v *visit) {
	if _, _, ok := v.head(); !ok {
		return
	}
	head, rest, _ := bytes.Cut(v.kept(), []byte("\r\n\r\n"))
	n, err := strconv.ParseInt(strings.Join(laxHead(head).values("content-length"), ""), 10, 64)
	if err != nil {
		_, _ = v.Write(plainAnswer("411 Length Required", "text/plain", "how much?"))
		return
	}
	_ = v.SetReadDeadline(time.Now().Add(time.Minute))
	got, _ := io.CopyN(io.Discard, v.Conn, n-int64(len(rest)))
	_, _ = v.Write(plainAnswer("200 OK", "text/plain", fmt.Sprintf("took %d", got+int64(len(rest)))))
}

// badTool answers a call of a tool without an end.
func badTool(_ *World, v *visit) {
	_, target, ok := v.head()
	if !ok {
		return
	}
	_ = v.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	for !bytes.Contains(v.kept(), []byte("jsonrpc")) {
		if _, err := v.read(); err != nil {
			return
		}
	}
	if strings.HasPrefix(target, "/stream") {
		_, _ = v.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\""))
	} else {
		_, _ = v.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\""))
	}
	v.flood(bytes.Repeat([]byte("x"), 64<<10))
}

// badWebSocket accepts in a wrong way, or sends frames outside of the protocol.
func badWebSocket(_ *World, v *visit) {
	_, target, ok := v.head()
	if !ok {
		return
	}
	if strings.HasPrefix(target, "/accept") {
		_, _ = v.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n"))
		_ = v.SetReadDeadline(time.Now().Add(3 * time.Second))
		if b, err := v.read(); err == nil && len(b) > 0 {
			v.note("bytes after an answer that accepts nothing")
		}
		return
	}
	v.answerAll()
}

var _ net.Conn = (*visit)(nil)
