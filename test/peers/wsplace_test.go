package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/npm"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const (
	peerData = "../../testdata/peers"
	peerHost = "peer.test"
)

// place is a server of sockets, events, pages and calls, another of sockets
// alone, and the account that goes there bare and inside.
type place struct {
	wraptest.World
	port     int    // of the server in this process
	nodePort int    // of ws, in Node
	modules  string // holds node_modules
	work     string
	ca       string // a file
	policy   string
	served   *peerServer
}

func newPlace(t *testing.T) place {
	t.Helper()
	p := place{World: wraptest.New(t), nodePort: wraptest.FreePort(t)}
	root := issue(t, "test authority", nil)
	leaf := issue(t, peerHost, &root)
	p.served = servePeers(t, leaf.tlsConfig)
	p.port = p.served.port
	outside := p.Dir(t, "outside")
	put := func(name string, b []byte) string {
		path := filepath.Join(outside, name)
		p.Write(t, path, string(b))
		return path
	}
	p.ca = put("ca.pem", root.certPEM)
	put("leaf.pem", leaf.certPEM)
	put("leaf.key", leaf.keyPEM)
	p.work = p.Dir(t, "work")
	for _, name := range []string{"ws-client.cjs", "ws-server.cjs"} {
		p.Write(t, filepath.Join(p.work, name), readFile(t, filepath.Join(peerData, name)))
	}
	p.modules = npm.Require(t, "peers")
	p.policy = p.PolicyFile(t, "peers", p.policyText())
	return p
}

func (p place) policyText() string {
	return fmt.Sprintf(`version: 1
name: peers
extends: [builtin:strict]
filesystem: {read: [%[4]q, "/etc/chromium?", "/etc/chromium.d?"]}
env: {set: {NODE_PATH: %[4]q}}
network:
  hosts: {%[1]s: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%[2]d, %[3]d], reason: the servers of this test}]
  ca: [%[5]q]
  rules:
    - name: sockets
      host: %[1]s
      ports: [%[2]d, %[3]d]
      protocol: websocket
      paths: ["/ws/**"]
      allow: [{paths: [/ws/echo], json: {/op: read}}]
    - name: calls
      host: %[1]s
      ports: [%[2]d]
      protocol: grpc
      allow: [{calls: ["grpc.testing.TestService/*"]}]
      deny: [{calls: ["grpc.testing.TestService/EmptyCall"]}]
    - name: pages
      host: %[1]s
      ports: [%[2]d]
      allow:
        - {methods: [GET], paths: [/page, /hold, /events]}
        - {methods: [POST], paths: [/result], max_body: 1000}
`, peerHost, p.port, p.nodePort, filepath.Join(p.modules, "node_modules"), p.ca)
}

// run runs a command bare or inside.
func (p place) run(t *testing.T, inside bool, argv ...string) wraptest.Ended {
	t.Helper()
	cmd := p.Bare(p.work, argv...)
	cmd.Env = append(cmd.Env, "CLIENT_DIAL=127.0.0.1", "SSL_CERT_FILE="+p.ca, "NODE_EXTRA_CA_CERTS="+p.ca, "CURL_CA_BUNDLE="+p.ca,
		"NODE_PATH="+filepath.Join(p.modules, "node_modules"))
	if inside {
		cmd = p.Wrap(p.work, p.policy, argv...)
	}
	return wraptest.Run(t, cmd, limit)
}

// goClient builds the Go clients where the account can run them.
func (p place) goClient(t *testing.T) string {
	t.Helper()
	path := filepath.Join(p.work, "goclient")
	cmd := exec.Command("go", "build", "-o", path, "./"+filepath.Join(peerData, "goclient"))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// serveNode starts the server of ws.
func (p place) serveNode(t *testing.T) {
	t.Helper()
	outside := filepath.Dir(p.ca)
	cmd := p.Bare(p.work, "node", "ws-server.cjs", fmt.Sprint(p.nodePort), filepath.Join(outside, "leaf.pem"), filepath.Join(outside, "leaf.key"))
	cmd.Env = append(cmd.Env, "NODE_PATH="+filepath.Join(p.modules, "node_modules"))
	wraptest.Serve(t, cmd, p.nodePort)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// peerServer speaks everything on one port.
type peerServer struct {
	pb.UnimplementedTestServiceServer
	port int

	mu     sync.Mutex
	result chan string // what a page found out
	held   chan struct{}
}

func servePeers(t *testing.T, certificate tls.Certificate) *peerServer {
	t.Helper()
	s := &peerServer{}
	s.reset()
	calls := grpc.NewServer()
	pb.RegisterTestServiceServer(calls, s)
	mux := http.NewServeMux()
	mux.HandleFunc("/ws/", s.socket)
	mux.HandleFunc("/events", s.events)
	mux.HandleFunc("/private/events", s.events)
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, readFile(t, filepath.Join(peerData, "page.html")))
	})
	mux.HandleFunc("/hold", func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		held := s.held
		s.mu.Unlock()
		select {
		case <-held:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/result", func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		select {
		case s.result <- string(b):
			close(s.held)
		default:
		}
	})
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		ErrorLog:  log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				calls.ServeHTTP(w, r)
				return
			}
			mux.ServeHTTP(w, r)
		}),
	}
	l := listen(t)
	s.port = l.Addr().(*net.TCPAddr).Port
	go func() { _ = server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// reset prepares for another page.
func (s *peerServer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result, s.held = make(chan string, 1), make(chan struct{})
}

// socket is the server of coder/websocket.
func (s *peerServer) socket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover})
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	for {
		kind, b, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, b) != nil {
			return
		}
	}
}

// events sends three, a moment between them, and then stays silent.
func (s *peerServer) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range 3 {
		_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
	<-r.Context().Done()
}

func (s *peerServer) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) {
	return &pb.Empty{}, nil
}

func (s *peerServer) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if r.GetFillUsername() { // stands for what takes too long
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.SimpleResponse{Payload: r.GetPayload()}, nil
}

func (s *peerServer) StreamingOutputCall(r *pb.StreamingOutputCallRequest, out grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	for range r.GetResponseParameters() {
		if err := out.Send(&pb.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *peerServer) FullDuplexCall(both grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	for {
		_, err := both.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = both.Send(&pb.StreamingOutputCallResponse{})
		}
		if err != nil {
			return err
		}
	}
}

// requireChromium gives the browser of Debian. Ubuntu's is a snap, which does not
// run in a sandbox.
func (p place) requireChromium(t *testing.T) string {
	t.Helper()
	path := p.Find("chromium")
	harness.Require(t, path != "", "chromium (Debian's package)")
	return path
}
