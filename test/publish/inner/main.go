// Command inner is the service that the tests publish: HTTP with streams and
// WebSockets, bytes, and a Unix socket, which it serves inside.
//
//	inner DIRECTORY
//
// makes DIRECTORY/ready once it listens on 8000 (HTTP), 8001 (bytes) and
// DIRECTORY/inner.sock (bytes). 8002 is opened and closed by request.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "inner:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	bytesOn, err := net.Listen("tcp", "127.0.0.1:8001")
	if err != nil {
		return err
	}
	go count(bytesOn)
	unix, err := net.Listen("unix", filepath.Join(dir, "inner.sock"))
	if err != nil {
		return err
	}
	go count(unix)
	s := &service{dir: dir, next: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:8000")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600); err != nil {
		return err
	}
	return http.Serve(l, s) // #nosec G114
}

// count answers a whole stream with its length, and what came so far after each
// line end.
func count(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			n, buf := 0, make([]byte, 4096)
			for {
				m, err := c.Read(buf)
				n += m
				if bytes.HasSuffix(buf[:m], []byte("\n")) {
					fmt.Fprintf(c, "so far %d\n", n)
				}
				if err != nil {
					fmt.Fprintf(c, "all %d\n", n)
					return
				}
			}
		}()
	}
}

type service struct {
	dir    string
	seen   atomic.Int64
	next   chan struct{}
	second atomic.Pointer[net.Listener]
}

// ServeHTTP answers by path.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/seen": // how many other requests there were
		fmt.Fprintln(w, s.seen.Load())
		return
	case "/head":
		fmt.Fprintf(w, "%s %s %s\n", r.Method, r.Host, r.RequestURI)
		_ = r.Header.Write(w)
	case "/body":
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, n)
	case "/events": // the second event waits for a request to /next
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-s.next
		fmt.Fprint(w, "data: 2\n\n")
	case "/next":
		s.next <- struct{}{}
	case "/socket":
		socket(w, r)
	case "/open":
		l, err := net.Listen("tcp", "127.0.0.1:8002")
		if err == nil {
			s.second.Store(&l)
			go func() { _ = http.Serve(l, http.HandlerFunc(second)) }() // #nosec G114
		}
	case "/close":
		_ = (*s.second.Load()).Close()
	case "/link": // the Unix socket becomes a link
		path := filepath.Join(s.dir, "inner.sock")
		_ = os.Remove(path)
		fmt.Fprintln(w, os.Symlink(r.URL.Query().Get("to"), path))
	case "/find": // what of a text shows anywhere here
		fmt.Fprintln(w, find(r.URL.Query().Get("text")+r.URL.Query().Get("more"), r.URL.Query().Get("file")))
	}
	s.seen.Add(1)
}

func second(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "second") }

func socket(w http.ResponseWriter, r *http.Request) {
	c, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	go func() {
		defer c.Close()
		for {
			message, op, err := wsutil.ReadClientData(c)
			if err != nil || wsutil.WriteServerMessage(c, op, append([]byte("echo "), message...)) != nil {
				return
			}
		}
	}()
}

func find(text, file string) (places []string) {
	if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), text) {
		places = append(places, file)
	}
	all, _ := filepath.Glob("/proc/[0-9]*/*")
	for _, path := range all {
		if name := filepath.Base(path); name != "environ" && name != "cmdline" {
			continue
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			places = append(places, path)
		}
	}
	return places
}
