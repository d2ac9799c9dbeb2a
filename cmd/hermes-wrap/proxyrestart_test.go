package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// The first restart comes at once, each further one within the time later, and
// one beyond the most never.
func TestRestartLimit(t *testing.T) {
	r := restarts{limit: restartLimit{most: 4, within: time.Minute, pause: time.Second}}
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second} {
		if got, ok := r.next(now); !ok || got != want {
			t.Errorf("restart %d: got %v, %v, want after %v", i, got, ok, want)
		}
	}
	if _, ok := r.next(now.Add(59 * time.Second)); ok {
		t.Error("a fifth one within the time: got leave")
	}
	if got, ok := r.next(now.Add(time.Minute)); !ok || got != 0 {
		t.Errorf("once the time is over: got %v, %v, want one at once", got, ok)
	}
	if r.total != 5 {
		t.Errorf("all together: got %d, want 5", r.total)
	}
}

// started is a run with real proxies, whose sockets lie on loopback.
type started struct {
	px       *proxyClient
	tcp, udp string
	said     atomic.Int64
	record   string
}

func startReal(t *testing.T, limit restartLimit) *started {
	t.Helper()
	s := &started{record: filepath.Join(t.TempDir(), "audit.jsonl")}
	log, err := audit.Open(s.record, "run")
	if err != nil {
		t.Fatal(err)
	}
	run := t.TempDir()
	s.px = startProxy(somePolicy(t), func() (proxySecrets, error) { return proxySecrets{}, nil }, proxyNeeds{
		setup: proxySetup{Run: "run", RunDir: run, Launcher: os.Getpid(), Inspect: true},
		log:   log, key: func(string) audit.ChainKey { return audit.ChainKey{} },
		record: log.Write, say: func(string) { s.said.Add(1) },
	})
	s.px.limit = limit
	t.Cleanup(func() {
		s.px.close()
		_ = log.Close()
	})
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s.tcp, s.udp = l.Addr().String(), u.LocalAddr().String()
	var files []*os.File
	for _, c := range []interface{ File() (*os.File, error) }{l.(*net.TCPListener), u} {
		f, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	_, _ = l.Close(), u.Close()
	if err := s.px.doors(files[:1], files[1:]); err != nil {
		t.Fatal(err)
	}
	return s
}

// A first proxy that hangs is waited for a while, and no longer.
func TestFirstProxyHangs(t *testing.T) {
	log, err := audit.Open(filepath.Join(t.TempDir(), "audit.jsonl"), "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	px := startProxy(somePolicy(t), func() (proxySecrets, error) { return proxySecrets{}, nil }, proxyNeeds{
		setup: proxySetup{Run: "run", RunDir: t.TempDir(), Launcher: os.Getpid(), Inspect: true},
		log:   log, key: func(string) audit.ChainKey { return audit.ChainKey{} },
		record: log.Write, say: func(string) {},
	})
	t.Cleanup(px.close)
	if <-px.started; px.err != nil {
		t.Fatal(px.err)
	}
	if err := unix.Kill(px.first.proc.Pid(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	px.patience = 50 * time.Millisecond
	// Stopped before or after its first word: then it has none for its doors.
	if err = px.doors(nil, nil); err == nil || !strings.Contains(err.Error(), "did not start within 50ms") {
		t.Errorf("got %v, want that it did not start in time", err)
	}
}

// life is the proxy of the moment, nil while there is none.
func (s *started) life() *proxyLife {
	s.px.mu.Lock()
	defer s.px.mu.Unlock()
	return s.px.now
}

// next waits for another proxy than the one given.
func (s *started) next(t *testing.T, old *proxyLife) *proxyLife {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if l := s.life(); l != nil && l != old {
			return l
		}
		select {
		case err := <-s.px.events:
			t.Fatalf("the run ended: %v", err)
		default:
		}
	}
	t.Fatal("got no other proxy within a minute")
	return nil
}

// lookup asks for a name until it gets another answer than SERVFAIL. As resolvers
// do, it asks again where none comes: a query may go with whoever has read it.
func (s *started) lookup(t *testing.T, name string) string {
	t.Helper()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 3}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	query, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp4", s.udp)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 512)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		_, _ = c.Write(query)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, err := c.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		var m dnsmessage.Message
		if err != nil || m.Unpack(buf[:n]) != nil {
			t.Fatalf("got no answer: %v", err)
		}
		if m.RCode == dnsmessage.RCodeServerFailure {
			continue
		}
		if len(m.Answers) == 1 {
			return fmt.Sprint(m.Answers[0].Body)
		}
	}
	t.Fatal("got nothing but SERVFAIL for a minute")
	return ""
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Twenty proxies end one after the other: each name keeps its address, the
// certificate stays, and nothing is left of them here.
func TestTwentyRestarts(t *testing.T) {
	s := startReal(t, restartLimit{most: 100, within: time.Hour, pause: time.Nanosecond})
	want := s.lookup(t, "first.example.org.")
	ca := string(s.px.ca)
	files := 0
	l := s.life()
	for i := range 20 {
		old := l
		old.proc.Kill()
		l = s.next(t, old)
		s.lookup(t, fmt.Sprintf("n%d.example.org.", i))
		if got := s.lookup(t, "first.example.org."); got != want {
			t.Fatalf("restart %d: got %s, want %s", i, got, want)
		}
		if err := unix.Kill(old.proc.Pid(), 0); err != unix.ESRCH {
			t.Fatalf("restart %d: the last proxy: got %v, want it gone", i, err)
		}
		if c, err := net.Dial("tcp", s.tcp); err == nil {
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.ReadAll(c); err == nil || os.IsTimeout(err) {
				t.Errorf("restart %d: a connection to no name: got %v, want a reset", i, err)
			}
			_ = c.Close()
		}
		if i == 1 {
			files = openFiles(t)
		}
	}
	for end := time.Now().Add(30 * time.Second); openFiles(t) > files && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // pipes and the like are closed behind
	}
	if got := openFiles(t); got > files {
		t.Errorf("descriptors after 20 restarts: got %d, want %d as after two", got, files)
	}
	if l.writer != "proxy-21" || s.said.Load() != 20 || string(s.px.ca) != ca || !strings.Contains(ca, "CERTIFICATE") {
		t.Errorf("got writer %s, %d warnings", l.writer, s.said.Load())
	}
	events := func() int {
		text, err := os.ReadFile(s.record)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), `"event_code":"proxy"`)
	}
	for end := time.Now().Add(time.Minute); events() < 40 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // the last one is recorded once it serves
	}
	if got := events(); got != 40 {
		t.Errorf("the record: got %d events about proxies, want 40", got)
	}
}

// One that keeps ending ends the run. From then on, and until the end, everything
// is refused.
func TestTooManyRestarts(t *testing.T) {
	s := startReal(t, restartLimit{most: 2, within: time.Hour, pause: time.Nanosecond})
	l := s.life()
	for range 2 {
		l.proc.Kill()
		l = s.next(t, l)
	}
	l.proc.Kill()
	err := <-s.px.events
	for _, want := range []string{"more than 2 times within", "signal 9"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	c, err := net.Dial("tcp", s.tcp)
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		_, err = io.ReadAll(c)
	}
	if err == nil || os.IsTimeout(err) {
		t.Errorf("a connection: got %v, want a reset", err)
	}
	if _, err := s.px.update(somePolicy(t), proxySecrets{}); err == nil {
		t.Error("an order: got no error")
	}
}

// The end of a run waits neither for a proxy that is to be started later nor for
// one that hangs, and leaves none behind.
func TestEndWithoutAProxy(t *testing.T) {
	s := startReal(t, restartLimit{most: 5, within: time.Hour, pause: time.Hour})
	l := s.life()
	l.proc.Kill()
	l = s.next(t, l)
	l.proc.Kill()
	for end := time.Now().Add(time.Minute); s.life() != nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s.px.close()
	<-s.px.gone
	if got := s.px.writers(); len(got) != 0 {
		t.Errorf("writers that ended: got %v, want none", got)
	}

	s = startReal(t, restartLimit{most: 5, within: time.Hour})
	l = s.life()
	if err := unix.Kill(l.proc.Pid(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.px.close()
	<-s.px.gone
	if err := unix.Kill(l.proc.Pid(), 0); err != unix.ESRCH {
		t.Errorf("a proxy that hung: got %v, want it gone", err)
	}
	if text, err := os.ReadFile(s.record); err != nil || !strings.Contains(string(text), "killed at the end of the run") {
		t.Errorf("the record: got nothing of it (%v)", err)
	}
}

// What the Go runtime says of a crash is kept as far as it cannot hold a secret.
func TestWordsOfACrash(t *testing.T) {
	const frames = "\ngoroutine 7 [running]:\nmain.read(0x1, {0x2, 0x3})\n\t/src/main.go:7 +0x1\nmain.main()\n\t/src/main.go:3\n\ngoroutine 8 [select]:\nmain.other()\n"
	for text, want := range map[string]string{
		"": "", "some noise\n": "",
		"panic: ghp_SecretSecretSecret [recovered]\n" + frames:                         ": panic in main.read, main.main",
		"panic: runtime error: index out of range [3] with length 2\n" + frames:        ": panic: runtime error: index out of range [3] with length 2 in main.read, main.main",
		"SIGSEGV: segmentation violation\nPC=0x1 m=0\n" + frames:                       ": SIGSEGV: segmentation violation in main.read, main.main",
		"fatal error: runtime: out of memory\n\nruntime stack:\nruntime.throw()\n":     ": fatal error: runtime: out of memory",
		"panic: ghp_SecretSecretSecret\n\tpanic: runtime error: x\n" + "goroutine 1 [": ": panic",
	} {
		if got := causeOf(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// A proxy that died of a panic says so in the record, not on the terminal.
func TestLastWords(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	words := hear(r)
	go func() {
		fmt.Fprintln(w, "fatal error: stack overflow")
		_, _ = w.Write(make([]byte, 1<<20))
		_ = w.Close()
	}()
	<-words.done
	if got := words.cause(); got != ": fatal error: stack overflow" {
		t.Errorf("got %q", got)
	}
}
