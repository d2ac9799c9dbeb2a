package escape

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// origin is a server with a name. It answers every path:
//
//	/public/echo                       the bytes of the request as they came
//	/public/redirect?to=URL&code=302   a redirection
//	/public/headers?Name=VALUE         fields of that name
//	/public/size?n=N                   N bytes
//	any other                          "origin NAME METHOD TARGET"
type origin struct {
	w    *world
	name string
}

func (o origin) canary(c net.Conn, s *sighting) {
	s.Name = o.name
	o.w.canary(c, s)
}

func (o origin) plain(c net.Conn, s *sighting) {
	s.Name, s.Network = o.name, "http"
	o.serve(c, s)
}

func (o origin) tls(c net.Conn, s *sighting) {
	s.Name, s.Network = o.name, "https"
	t := tls.Server(c, &tls.Config{
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			o.w.mu.Lock()
			s.SNI = h.ServerName
			o.w.mu.Unlock()
			name := h.ServerName
			if name == "" {
				name = o.name
			}
			return o.w.CA.issue(name)
		},
	})
	_ = t.SetDeadline(time.Now().Add(10 * time.Second))
	if err := t.Handshake(); err != nil {
		return
	}
	_ = t.SetDeadline(time.Time{})
	o.serve(t, s)
}

// taped keeps what a client sends.
type taped struct {
	net.Conn
	note func([]byte)
}

func (t *taped) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.note(p[:n])
	return n, err
}

// serve speaks HTTP until the client has enough. What it was sent is noted
// before net/http parses it, and so is what net/http refuses.
func (o origin) serve(c net.Conn, s *sighting) {
	l := &one{conn: &taped{Conn: c, note: func(b []byte) { o.w.note(s, b) }}, closed: make(chan struct{})}
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.answer(w, r, s) }),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Second, Protocols: &http.Protocols{},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	l.server = server
	_ = server.Serve(l)
	<-l.closed
}

// one is a listener with one connection.
type one struct {
	conn   net.Conn
	server *http.Server
	given  bool
	closed chan struct{}
}

// Accept gives the connection, and then that there is no other.
func (l *one) Accept() (net.Conn, error) {
	if l.given {
		return nil, net.ErrClosed
	}
	l.given = true
	return &closing{Conn: l.conn, closed: l.closed}, nil
}

// Close does nothing: the connection has its own end.
func (l *one) Close() error { return nil }

// Addr is where the connection arrived.
func (l *one) Addr() net.Addr { return l.conn.LocalAddr() }

// closing says when it is closed.
type closing struct {
	net.Conn
	closed chan struct{}
	once   sync.Once
}

// Close closes the connection.
func (c *closing) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (o origin) answer(w http.ResponseWriter, r *http.Request, s *sighting) {
	if r.ProtoMajor == 2 {
		o.h2(r, s)
	}
	q, _ := url.ParseQuery(r.URL.RawQuery)
	w.Header().Set("X-Origin", o.name)
	switch r.URL.Path {
	case "/public/echo":
		o.echo(w, r)
	case "/public/redirect":
		code, err := strconv.Atoi(q.Get("code"))
		if err != nil || code < 300 || code > 399 {
			code = http.StatusFound
		}
		w.Header().Set("Location", q.Get("to"))
		w.WriteHeader(code)
	case "/public/headers":
		for name, values := range q {
			w.Header()[name] = values
		}
		fmt.Fprintf(w, "origin %s\n", o.name)
	case "/public/size":
		n, _ := strconv.ParseInt(q.Get("n"), 10, 64)
		_, _ = io.CopyN(w, zeros{}, min(n, 1<<30))
	default:
		if o.name == "llm.test" && r.Method == http.MethodPost {
			o.complete(w, r)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "origin %s %s %s\nbody %d\n", o.name, r.Method, r.RequestURI, n)
	}
}

// h2 notes a request whose bytes are not to be read: fields are packed.
func (o origin) h2(r *http.Request, s *sighting) {
	var head strings.Builder
	_ = r.Header.Write(&head)
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	s.Requests = append(s.Requests, request{r.Method, r.RequestURI, []string{r.Host}})
	s.Raw = append(s.Raw, "\n"+head.String()+string(body)...)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
}

func (o origin) echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s\nHost: %s\n", r.Method, r.RequestURI, r.Proto, r.Host)
	_ = r.Header.Write(w)
	_, _ = io.WriteString(w, "\r\n")
	_, _ = io.Copy(w, r.Body)
}

// complete answers a call of a model.
func (o origin) complete(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// naive is a gateway as one would write it in an afternoon: it believes the
// Host field, looks at paths as they are spelled, and puts secrets where their
// placeholders stand. Twins of cases about HTTP run through it, to show that an
// attack gets past a filter that does less.
func (w *world) naive() error {
	l, err := net.Listen("tcp", gateway+":3128")
	if err != nil {
		return err
	}
	w.tcp = append(w.tcp, l)
	w.tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.tasks.Go(func() {
				defer c.Close()
				if !w.ours(c.RemoteAddr()) {
					w.forward(c)
				}
			})
		}
	})
	return nil
}

// forward carries one connection of the naive gateway.
func (w *world) forward(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	in := bufio.NewReader(c)
	var head strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil || head.Len() > 1<<16 {
			return
		}
		head.WriteString(line)
		if line == "\r\n" || line == "\n" {
			break
		}
	}
	target, raw, err := naiveTarget(head.String())
	if err != nil {
		fmt.Fprintf(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	up, err := (&net.Dialer{Timeout: 5 * time.Second, Resolver: &w.resolver}).Dial("tcp", target)
	if err != nil {
		fmt.Fprintf(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return
	}
	defer up.Close()
	_ = up.SetDeadline(time.Now().Add(15 * time.Second))
	if raw == "" {
		_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	} else {
		_, _ = io.WriteString(up, raw)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(up, in)
		if t, ok := up.(*net.TCPConn); ok {
			_ = t.CloseWrite()
		}
		close(ended)
	}()
	_, _ = io.Copy(c, up)
	c.Close()
	<-ended
}

var errNaive = errors.New("not allowed")

// naiveTarget gives where a request goes and what is sent there; nothing for a
// tunnel.
func naiveTarget(head string) (target, raw string, err error) {
	line, rest, _ := strings.Cut(head, "\n")
	words := strings.Fields(line)
	if len(words) < 2 {
		return "", "", errNaive
	}
	method, uri := words[0], words[1]
	if method == "CONNECT" {
		host, _, _ := strings.Cut(uri, ":")
		if !naiveHost(host) {
			return "", "", errNaive
		}
		return uri, "", nil
	}
	host := ""
	for field := range strings.SplitSeq(rest, "\n") {
		if name, value, ok := strings.Cut(field, ":"); ok && strings.EqualFold(name, "host") && host == "" {
			host = strings.TrimSpace(value)
		}
	}
	path := uri
	if _, after, ok := strings.Cut(uri, "://"); ok {
		authority, p, _ := strings.Cut(after, "/")
		path, target = "/"+p, authority
	} else {
		target = host
	}
	if host == "" {
		host = target
	}
	if !naiveHost(strings.Split(host, ":")[0]) || strings.HasPrefix(host, "allowed.test") && !strings.HasPrefix(path, "/public/") {
		return "", "", errNaive
	}
	if !strings.Contains(target, ":") {
		target += ":80"
	}
	words[1] = path
	return target, strings.Join(words, " ") + "\r\n" + rest, nil
}

func naiveHost(host string) bool {
	for _, name := range []string{"allowed.test", "other.test", "api.test", "llm.test"} {
		if strings.HasSuffix(host, name) || strings.HasPrefix(host, name) {
			return true
		}
	}
	return false
}
