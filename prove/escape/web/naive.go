package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/idna"
)

// Naive is a gateway as it is easily written: it judges what it reads in the way
// in which its own libraries happen to read it, and forwards the bytes. An attack
// of the table must come through it; otherwise it would prove nothing that it does
// not come through ours.
//
// It refuses what is plainly not allowed: another host, a path that does not
// begin like an allowed one, a model, tool or field that is spelt out.
type Naive struct {
	World *World
	// Dial connects to an origin by name.
	Dial func(ctx context.Context, name string, port int) (net.Conn, error)
	// Credentials are put into requests, by host.
	Credentials map[string]string
	// Placeholders are replaced by their secrets wherever they are seen.
	Placeholders map[string]string
	// Mode says which mistake the gateway makes about hosts and connections:
	//
	//	first   judges the first request of a connection (also when empty)
	//	each    judges each request where it believes that one begins
	//	deny    allows what is not on a list of hosts, compared as text
	//	suffix  allows every host that has "wild.test" in it
	//	host    believes the Host field, and dials where the client did
	//	sni     dials the server name of TLS, whatever the address was
	//	follow  follows redirects itself, with the fields of the first request
	//	buffer  gives an answer on once it has all of it, or what came
	//	events  writes what a provider says about a failure into a stream of events
	//	fragile ends for good at a request that it cannot read
	Mode string

	gone atomic.Bool
}

// Serve judges a connection that was made to the address of name.
func (n *Naive) Serve(name string, port int, conn net.Conn) {
	n.serve(&naiveConn{n: n, name: name, port: port}, conn)
}

func (n *Naive) serve(s *naiveConn, conn net.Conn) {
	name := s.name
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if n.gone.Load() {
		return
	}
	p := &peeked{Conn: conn}
	first, err := p.peek()
	if err != nil {
		return
	}
	if first != 0x16 {
		// Mistake: what it does not know passes.
		if line, _, _ := bytes.Cut(p.held, []byte("\n")); !bytes.Contains(p.held, []byte(" HTTP/1.")) && !bytes.HasPrefix(line, []byte("GET ")) {
			if n.Mode == "fragile" {
				n.gone.Store(true)
				return
			}
			s.tunnel(p)
			return
		}
		s.http(p)
		return
	}
	sni, odd := clientHello(p.held)
	if odd {
		s.tunnel(p) // Mistake: without a name it cannot look inside, so it does not.
		return
	}
	s.sni = sni
	t := tls.Server(p, &tls.Config{
		NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS10, //nolint:gosec // naive on purpose
		CipherSuites:   append(slices.Clone(oldSuites), tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return n.World.CA.leaf(name, "", nil) },
	})
	if t.Handshake() != nil {
		return
	}
	s.tls = true
	if t.ConnectionState().NegotiatedProtocol == "h2" {
		s.http2(t)
		return
	}
	s.http(t)
}

// naiveConn is one connection of a client.
type naiveConn struct {
	n    *Naive
	name string // of the address that the client dialled
	sni  string
	port int
	tls  bool
	// granted is set where the host was judged by what CONNECT says.
	granted bool
	// judged is set once a request of HTTP/2 was allowed.
	judged bool
}

// clientHello gives the server name, and tells of those that cannot be used.
func clientHello(hello []byte) (sni string, odd bool) {
	c, s := net.Pipe()
	go func() {
		_, _ = c.Write(hello)
		_ = c.Close()
	}()
	_ = tls.Server(s, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { //nolint:gosec // reads only
		sni = h.ServerName
		return nil, io.EOF
	}}).Handshake()
	_ = s.Close()
	return sni, sni == "" || len(sni) > 253
}

// naiveHead is a head as the gateway reads it.
type naiveHead struct {
	raw            []byte
	method, target string
	fields         []field
}

func (h *naiveHead) get(name string) string {
	for _, f := range h.fields {
		if strings.EqualFold(f.name, name) {
			return f.value
		}
	}
	return ""
}

// readNaiveHead reads up to an empty line; lines end in CR LF, and what else
// is in them is somebody else's business.
func readNaiveHead(r io.Reader, held []byte) (h *naiveHead, rest []byte, err error) {
	buf := make([]byte, 16<<10)
	for {
		end := bytes.Index(held, []byte("\r\n\r\n"))
		width := 4
		if lf := bytes.Index(held, []byte("\n\n")); lf >= 0 && (end < 0 || lf < end) && !bytes.Contains(held[:lf], []byte("\r\n")) {
			end, width = lf, 2
		}
		if end >= 0 {
			return parseNaiveHead(held[:end+width]), held[end+width:], nil
		}
		n, err := r.Read(buf)
		held = append(held, buf[:n]...)
		if err != nil {
			return nil, held, err
		}
		if len(held) > 64<<20 {
			return nil, held, io.ErrShortBuffer
		}
	}
}

func parseNaiveHead(raw []byte) *naiveHead {
	h := &naiveHead{raw: raw}
	lines := strings.Split(strings.TrimRight(string(raw), "\r\n"), "\n")
	if words := strings.Fields(lines[0]); len(words) > 1 {
		h.method, h.target = words[0], words[1]
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r"), ":")
		h.fields = append(h.fields, field{name, strings.TrimSpace(value)})
	}
	return h
}

// allows is the gateway's policy. Mistake: the path is compared as it is
// written, and the host is the one of the connection.
func (s *naiveConn) allows(h *naiveHead) bool {
	host := s.name
	if s.n.Mode == "host" || s.n.Mode == "deny" || s.n.Mode == "suffix" {
		host = strings.Split(h.get("Host"), ":")[0]
	}
	switch {
	case s.n.Mode == "deny":
		return host != "denied.test"
	case s.n.Mode == "suffix":
		return strings.Contains(strings.ToLower(host), "wild.test")
	case host == "denied.test" || host == "evil.test":
		return s.granted
	case host == "deny.test":
		return !strings.HasPrefix(h.target, "/admin") && !strings.HasPrefix(h.target, "/secret") && !strings.Contains(h.target, "mode="+Word)
	case host == "git.test":
		return strings.HasPrefix(h.target, "/acme/")
	case host == "allowed.test":
		return slices.Contains([]string{"GET", "HEAD", "POST", "OPTIONS"}, h.method) && strings.HasPrefix(pathOf(h.target), "/public")
	}
	return true
}

// pathOf gives the path of a target in any form.
func pathOf(target string) string {
	if _, rest, ok := strings.Cut(target, "://"); ok && target[0] != '/' {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return rest[i:]
		}
		return "/public"
	}
	return target
}

// dials gives the host that a request goes to. Mistake: what was judged is not
// what is dialled; the last name that was heard counts.
func (s *naiveConn) dials(h *naiveHead) string {
	switch s.n.Mode {
	case "host":
		return s.name
	case "sni":
		return normal(s.sni)
	}
	for _, authority := range []string{absoluteHost(h.target), h.get("Host"), s.sni} {
		if host := normal(authority); host != "" && s.n.knows(host) {
			return host
		}
	}
	return s.name
}

func absoluteHost(target string) string {
	_, rest, ok := strings.Cut(target, "://")
	if !ok || target[0] == '/' {
		return ""
	}
	return beforeAny(rest, "/?#")
}

// normal gives a name as a kind library would: without a user, a port, a final
// dot, in small letters, in ASCII.
func normal(authority string) string {
	host := percent(authority)
	host = host[strings.LastIndexByte(host, '@')+1:]
	host = beforeAny(strings.TrimLeft(host, "[ "), ":\x00\\/#]\t\r\n ,")
	host = strings.Trim(strings.ReplaceAll(host, "..", "."), ".")
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = strings.TrimSuffix(ascii, ".")
	}
	return strings.ToLower(host)
}

func (n *Naive) knows(host string) bool {
	return slices.ContainsFunc(Origins(), func(o Origin) bool { return o.Name == host })
}

const refusedAnswer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

// http judges requests of HTTP/1.
func (s *naiveConn) http(c net.Conn) {
	var up net.Conn
	var held []byte
	answered := make(chan struct{})
	defer func() {
		if up == nil {
			return
		}
		// What the server still says is for a client that waits.
		closeWrite(up)
		select {
		case <-answered:
		case <-time.After(time.Second):
		}
		_ = up.Close()
	}()
	for {
		h, rest, err := readNaiveHead(c, held)
		if err != nil || h.method == "" {
			if s.n.Mode == "fragile" && len(rest) > 0 {
				s.n.gone.Store(true)
			}
			return
		}
		body, after, err := s.body(c, h, rest)
		if err != nil {
			return
		}
		if !s.allows(h) || !allowsBody(s.name, h, body) {
			_, _ = io.WriteString(c, refusedAnswer)
			closeWrite(c)
			_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			_, _ = io.Copy(io.Discard, c) // a reset could overtake the answer
			return
		}
		if up == nil {
			if up, err = s.dial(s.dials(h)); err != nil {
				_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				return
			}
			go func() {
				defer close(answered)
				s.answer(c, up, h)
				_ = c.Close()
			}()
		}
		if _, err := up.Write(s.swap(append(s.dress(h), body...))); err != nil {
			return
		}
		if s.n.Mode != "each" {
			_, _ = up.Write(s.swap(after))
			s.pour(up, c)
			return
		}
		held = after
	}
}

// body gives what belongs to the request. Mistake: Content-Length goes first,
// and any number will do; a coding that is not known is none.
func (s *naiveConn) body(c net.Conn, h *naiveHead, rest []byte) (body, after []byte, err error) {
	size := 0
	if length := h.get("Content-Length"); length != "" {
		base := 10
		if strings.HasPrefix(length, "0x") {
			length, base = length[2:], 16
		}
		n, err := strconv.ParseInt(strings.Split(length, ",")[0], base, 64)
		if err == nil && n > 0 {
			size = int(min(n, 1<<20))
		}
	} else if strings.EqualFold(h.get("Transfer-Encoding"), "chunked") {
		return s.chunks(c, rest)
	}
	if h.get("Expect") != "" && len(rest) == 0 {
		return nil, rest, nil
	}
	for len(rest) < size {
		buf := make([]byte, 32<<10)
		n, err := c.Read(buf)
		rest = append(rest, buf[:n]...)
		if err != nil {
			break
		}
	}
	size = min(size, len(rest))
	return rest[:size], rest[size:], nil
}

// chunks reads a chunked body whose lines end in CR LF. Mistake: it does not
// look at what stands after the size.
func (s *naiveConn) chunks(c net.Conn, rest []byte) (body, after []byte, err error) {
	buf := make([]byte, 32<<10)
	for {
		if n := chunkEnd(rest, "\r\n", 64); bytes.HasSuffix(rest[:n], []byte("\r\n\r\n")) {
			return rest[:n], rest[n:], nil
		}
		n, err := c.Read(buf)
		rest = append(rest, buf[:n]...)
		if err != nil {
			return rest, nil, nil //nolint:nilerr // what came is forwarded
		}
	}
}

func (s *naiveConn) dial(host string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := s.n.Dial(ctx, host, s.port)
	if err != nil || !s.tls {
		return c, err
	}
	t := tls.Client(c, &tls.Config{
		ServerName: host, InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, //nolint:gosec // naive on purpose
		CipherSuites: append(slices.Clone(oldSuites), tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
		// Mistake: whoever asks is shown it.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return s.n.World.CA.leaf("agent", "", nil)
		},
	})
	if err := t.Handshake(); err != nil {
		_ = c.Close()
		return nil, err
	}
	return t, nil
}

// dress adds what gateways add, and leaves what the client sent.
func (s *naiveConn) dress(h *naiveHead) []byte {
	line, rest, _ := bytes.Cut(h.raw, []byte("\n"))
	var b bytes.Buffer
	b.Write(append(line, '\n'))
	host := s.name
	if s.n.Mode == "host" {
		host = h.get("Host")
	}
	if secret := s.n.Credentials[host]; secret != "" || host == "api2.test" && strings.HasPrefix(h.target, "/one") {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", secret)
	}
	if s.n.Mode != "each" {
		b.WriteString("Via: 1.1 gateway\r\nX-Forwarded-For: 127.0.0.1\r\n")
	}
	b.Write(rest)
	return b.Bytes()
}

// swap puts secrets in the place of placeholders, wherever they stand. It sees
// through nothing but plain text, base64 and escapes, as a helpful gateway does.
func (s *naiveConn) swap(b []byte) []byte {
	for placeholder, secret := range s.n.Placeholders {
		b = bytes.ReplaceAll(b, []byte(placeholder), []byte(secret))
	}
	return b
}

// pour forwards what comes after the first request, unread.
func (s *naiveConn) pour(up, c net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			if _, werr := up.Write(s.swap(buf[:n])); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// tunnel carries bytes without a look at them.
func (s *naiveConn) tunnel(c net.Conn) {
	up, err := s.dial(s.name)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(c, up)
		_ = c.Close()
	})
	_, _ = io.Copy(up, c)
	_ = up.Close()
	wg.Wait()
}

var firstField = regexp.MustCompile(`\{\s*([A-Za-z_]+)`)

// allowsBody judges a body with the libraries at hand: of two names the last
// counts, letter case does not, and what cannot be read is not judged.
func allowsBody(host string, h *naiveHead, body []byte) bool {
	if host == "git.test" { // Mistake: a push has one ref
		return !bytes.Contains(body[:min(len(body), 120)], []byte(Word))
	}
	var m struct {
		Method string
		Model  string
		Query  string
		Params struct{ Name string }
	}
	if json.NewDecoder(bytes.NewReader(body)).Decode(&m) != nil {
		return true
	}
	switch {
	case strings.HasSuffix(host, "llm.test"):
		return m.Model == "" || strings.HasPrefix(m.Model, "good-")
	case strings.HasSuffix(host, "mcp.test"):
		return !strings.HasPrefix(m.Params.Name, Word)
	case host == "rpc.test":
		return !strings.HasPrefix(m.Method, Word)
	case host == "gql.test":
		f := firstField.FindStringSubmatch(m.Query)
		return f == nil || !strings.HasPrefix(f[1], Word)
	}
	return true
}

func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
}
