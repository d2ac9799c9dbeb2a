package proxy

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// reading is what a server understood of one request.
type reading struct {
	Method, Target, Host string
	// Body is in hexadecimal digits.
	Body string
}

// readingField is the answer field in which our servers show their reading.
const readingField = "X-Reading"

// readHandler answers with what net/http understood.
func readHandler(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	text, err := json.Marshal(reading{r.Method, r.RequestURI, r.Host, hex.EncodeToString(b)})
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set(readingField, base64.StdEncoding.EncodeToString(text))
}

// tellAll sends bytes on a connection of their own and gives the readings in
// the answers, as far as the server went along.
func tellAll(t testing.TB, network, addr string, raw []byte) []reading {
	t.Helper()
	dialer := new(net.Dialer)
	if network == "tcp" { // the ports of one address would be used up within a minute
		dialer.LocalAddr = loopbackSource()
	}
	c, err := dialer.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Write(raw) // a server that refuses may close early
	closeWrite(c)
	answers, _ := io.ReadAll(c)
	return readingsIn(t, answers)
}

func readingsIn(t testing.TB, answers []byte) (all []reading) {
	t.Helper()
	for r := bufio.NewReader(bytes.NewReader(answers)); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return all
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		text, err := base64.StdEncoding.DecodeString(resp.Header.Get(readingField))
		if resp.StatusCode == http.StatusContinue {
			continue
		}
		if err != nil || len(text) == 0 {
			return all
		}
		var got reading
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		all = append(all, got)
	}
}

// differential is our front before an origin, and the servers that it is
// compared with.
type differential struct {
	w     *world
	front string
	peers map[string]func(testing.TB, []byte) []reading

	mu        sync.Mutex
	forwarded bytes.Buffer // what reached the origin
}

// record keeps what the origin's connections receive.
type record struct {
	net.Conn
	d *differential
}

func (r record) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.d.forwarded.Write(p[:n])
	return n, err
}

type recordListener struct {
	net.Listener
	d *differential
}

func (l recordListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return record{c, l.d}, err
}

// diffHost is the host that every well-formed case is for.
const diffHost = "api.example.org"

func newDifferential(t testing.TB) *differential {
	t.Helper()
	n := policy.Network{Rules: []policy.Rule{{Name: "all", Host: diffHost, TLS: policy.TLSInspect}}}
	d := &differential{w: newWorld(t, n)}
	d.w.srv.Limits.Linger = 50 * time.Millisecond
	origin := &http.Server{Handler: http.HandlerFunc(readHandler), ReadHeaderTimeout: 10 * time.Second}
	l := d.w.listen()
	var wg sync.WaitGroup
	wg.Go(func() { _ = origin.Serve(recordListener{l, d}) })
	d.w.publish(diffHost, 80, l.Addr().String())
	plain := &http.Server{Handler: http.HandlerFunc(readHandler), ReadHeaderTimeout: 10 * time.Second}
	p, err := net.Listen("unix", filepath.Join(shortDir(t), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { _ = plain.Serve(p) })
	t.Cleanup(func() {
		_ = origin.Close()
		_ = plain.Close()
		wg.Wait()
	})
	d.front = d.w.door(diffHost, 80)
	nginx, node, python := startNginx(t, p.Addr().String()), startNode(t), startPython(t)
	at := func(network, addr string) func(testing.TB, []byte) []reading {
		return func(t testing.TB, raw []byte) []reading { return tellAll(t, network, addr, raw) }
	}
	d.peers = map[string]func(testing.TB, []byte) []reading{
		"net/http": at("unix", p.Addr().String()), "nginx": at("unix", nginx), "node": at("unix", node), "python": at("unix", python),
	}
	return d
}

// last ends each case: a server that loses count takes it for a part of what
// came before, or the other way round.
const last = "GET /last HTTP/1.1\r\nHost: " + diffHost + "\r\nConnection: close\r\n\r\n"

// compare fails when the front accepts what another server reads differently,
// or forwards what two servers read differently. It gives how much was accepted.
func (d *differential) compare(t testing.TB, raw []byte) int {
	t.Helper()
	raw = append(bytes.Clone(raw), last...)
	d.mu.Lock()
	d.forwarded.Reset()
	d.mu.Unlock()
	ours := tellAll(t, "tcp", d.front, raw)
	d.mu.Lock()
	forwarded := bytes.Clone(d.forwarded.Bytes())
	d.mu.Unlock()
	for name, read := range d.peers {
		theirs := read(t, raw)
		for i := range min(len(ours), len(theirs)) {
			if got := canonicalReading(theirs[i]); got != ours[i] {
				t.Errorf("request %d of %q\n%s reads %q,\nwe read %q", i, raw, name, theirs[i], ours[i])
			}
		}
		if len(ours) == 0 {
			continue
		}
		// What was forwarded may come on several connections; none of the requests
		// says "close", so that they can be told one after the other.
		// The last one is cut off where its body turned out to be malformed.
		again := read(t, append(forwarded, last...))
		if whole := ours[len(ours)-1].Target == "/last"; whole && len(again) < len(ours) {
			t.Errorf("%q was forwarded as %q, of which %s reads %d requests, want %d", raw, forwarded, name, len(again), len(ours))
			continue
		}
		for i := range min(len(ours), len(again)) {
			if again[i] != ours[i] {
				t.Errorf("%q was forwarded as %q, where %s reads %q,\nwant %q", raw, forwarded, name, again[i], ours[i])
			}
		}
	}
	return len(ours)
}

// canonicalReading writes a reading of the original as we forward it: the path
// has one form, and the host too.
func canonicalReading(r reading) reading {
	target := r.Target
	if rest, ok := strings.CutPrefix(target, "http://"); ok {
		if i := strings.IndexAny(rest, "/?"); i >= 0 {
			target = rest[i:]
		} else {
			target = "/"
		}
		if target[0] == '?' {
			target = "/" + target
		}
	}
	path, query, found := strings.Cut(target, "?")
	if p, err := netpolicy.CanonicalPath(path); err == nil {
		path = p
	}
	if r.Target = path; found && query != "" {
		r.Target += "?" + query
	}
	if h, port, err := netpolicy.ParseHostPort(r.Host, 80); err == nil && port == 80 {
		r.Host = h.String()
	}
	return r
}

// TestDifferential sends generated requests, most of them odd, to the front and
// to net/http, nginx and Node. What the front accepts, nobody may read
// differently. HERMES_SEED repeats a run; HERMES_CASES lengthens it.
func TestDifferential(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("HERMES_SEED"), 10, 64); err == nil {
		seed = s
	}
	cases := 1500
	if n, err := strconv.Atoi(os.Getenv("HERMES_CASES")); err == nil {
		cases = n
	}
	t.Logf("HERMES_SEED=%d", seed)
	d := newDifferential(t)
	g := oddRequests{rand.New(rand.NewPCG(seed, 1))}
	accepted, refused := 0, 0
	for range cases {
		raw := g.next()
		if n := d.compare(t, raw); n > 0 {
			accepted++
		} else {
			refused++
		}
		if t.Failed() {
			t.Fatalf("HERMES_SEED=%d", seed)
		}
	}
	// Both kinds must be there in numbers, or the comparison says nothing.
	if accepted < cases/20 || refused < cases/20 {
		t.Errorf("got %d accepted and %d refused, want some hundred of each", accepted, refused)
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
}

// TestDifferentialControl shows that the comparison can fail: a front that
// hands bytes on as they come is caught by the classic cases.
func TestDifferentialControl(t *testing.T) {
	d := newDifferential(t)
	const smuggled = "POST / HTTP/1.1\r\nHost: " + diffHost + "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + last
	seen := map[string]string{}
	for name, read := range d.peers {
		text, err := json.Marshal(read(t, []byte(smuggled)))
		if err != nil {
			t.Fatal(err)
		}
		seen[string(text)] = name
	}
	if len(seen) < 2 {
		t.Errorf("got one reading of %q from all servers (%v), want several", smuggled, seen)
	}
	if ours := tellAll(t, "tcp", d.front, []byte(smuggled)); len(ours) != 0 {
		t.Errorf("the front accepted %q as %q", smuggled, ours)
	}
}

// FuzzDifferential does the same with bytes that the fuzzer finds.
func FuzzDifferential(f *testing.F) {
	g := oddRequests{rand.New(rand.NewPCG(1, 2))}
	for range 40 {
		f.Add(g.next())
	}
	d := newDifferential(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 4096 {
			return
		}
		d.compare(t, raw)
	})
}
