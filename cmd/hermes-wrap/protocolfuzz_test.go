package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// sentFile is what is passed along with a packet. Descriptors of it are counted:
// those of other files come and go as the fuzzer works.
type sentFile struct{ path string }

func newSentFile(t testing.TB) sentFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sent")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return sentFile{path}
}

// send sends a packet with so many descriptors of the file.
func (s sentFile) send(t *testing.T, socket int, b []byte, n int) {
	t.Helper()
	f, err := os.Open(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Sendmsg(socket, b, unix.UnixRights(slices.Repeat([]int{int(f.Fd())}, n)...), nil, unix.MSG_NOSIGNAL); err != nil {
		t.Fatal(err)
	}
}

// wantNone fails while a descriptor of the file is open.
func (s sentFile) wantNone(t *testing.T, packet []byte) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		if to, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && to == s.path {
			t.Fatalf("%q left descriptor %s open", packet, entry.Name())
		}
	}
}

// addPackets adds values as packets, and texts that are none.
func addPackets(f *testing.F, values ...any) {
	f.Helper()
	for i, v := range values {
		b, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(i))
	}
	for i, text := range []string{"", "{}", "null", "[]", "{}}", "{}]", `{"op":"stop"} {"op":"exec"}`, `{"op":7}`, `{"seq":1,"seq":2}`, "{\"op\":\"\xff\"}", `{"Done":1}`, `{"op":"x","uid":0}`} {
		f.Add([]byte(text), uint8(i))
	}
}

// fuzzPeers is a connection to a control socket.
func fuzzPeers(t *testing.T) (asks *os.File, p *peer) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "peer")
	defer theirs.Close()
	c, err := net.FileConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "asks"), &peer{conn: c.(*net.UnixConn)}
}

// FuzzControlSocket: any packet on a run's control socket is one whole JSON object
// with known fields, which says the same when it is sent again, and with no more
// descriptors than there may be; or it is refused and leaves no descriptor.
func FuzzControlSocket(f *testing.F) {
	grace := time.Second
	addPackets(f,
		controlRequest{Op: opStatus}, controlRequest{Op: opStop, Stop: &stopRequest{Grace: &grace}}, controlRequest{Op: opAttach, Attach: &attachRequest{Rows: 24, ReadOnly: true}},
		controlRequest{Op: opExec, Exec: &execRequest{Argv: []string{"sh", "-c", "true"}, Env: []string{"A=1"}, Streams: []int{0, 1, 2}}},
	)
	sent := newSentFile(f)
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		if len(b) > 80<<10 || len(b) == 0 {
			return
		}
		files := int(n % 6)
		asks, p := fuzzPeers(t)
		defer asks.Close()
		defer p.close()
		sent.send(t, int(asks.Fd()), b, files)
		var q controlRequest
		got, err := p.receive(&q, controlWait)
		if err == nil && (!json.Valid(b) || len(got) != files || files > controlFiles || len(b) > controlBytes) {
			t.Errorf("%q with %d descriptors: got %+v with %d, want an error", b, files, q, len(got))
		}
		closeFiles(got)
		sent.wantNone(t, b)
		if err != nil {
			return
		}
		again, err := json.Marshal(q)
		var back controlRequest
		if err = errors.Join(err, decodePacket(again, &back)); err != nil || !reflect.DeepEqual(q, back) {
			t.Fatalf("%q was read as %+v, and that as %+v (%v)", b, q, back, err)
		}
	})
}

// FuzzProxyOrders: whatever the launcher sends, the proxy answers each order that
// has an answer once, with its number; it carries nothing out that came without
// a policy and its secrets, and keeps no descriptor.
func FuzzProxyOrders(f *testing.F) {
	addPackets(f,
		proxyOrder{Seq: 1}, proxyOrder{Seq: 2, Ping: true}, proxyOrder{Seq: 3, Stats: true}, proxyOrder{Seq: 4, Audit: true}, proxyOrder{Seq: 5, Inbound: "a"}, proxyOrder{Docker: true},
	)
	sent := newSentFile(f)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		if len(b) > 60<<10 || len(b) == 0 {
			return
		}
		record, err := audit.Open(filepath.Join(dir, "audit.jsonl"), "run")
		if err != nil {
			t.Fatal(err)
		}
		s := &proxy.Server{Audit: record}
		ours, theirs, err := sandbox.NewChannelPair()
		if err != nil {
			t.Fatal(err)
		}
		sent.send(t, int(ours.File().Fd()), b, int(n%4))
		_ = ours.EndSending()
		obeyLauncher(theirs, s)
		_ = theirs.Close()
		var answers []proxyEvent
		for {
			var e proxyEvent
			if _, err := ours.Receive(&e); err != nil {
				break
			}
			answers = append(answers, e)
		}
		_ = ours.Close()
		err = errors.Join(s.Close(), record.Close())
		sent.wantNone(t, b)
		var o proxyOrder
		if json.Unmarshal(b, &o) != nil || o.Inbound != "" || o.Docker {
			if len(answers) > 0 {
				t.Fatalf("%q: got %+v, want no answer", b, answers)
			}
			return
		}
		if err != nil || len(answers) != 1 || answers[0].Done != o.Seq || !o.Ping && !o.Stats && answers[0].Error == "" || o.Stats && !o.Ping && answers[0].Stats == nil {
			t.Fatalf("%q: got %+v (%v), want one answer, and an error where there was something to do", b, answers, err)
		}
	})
}

// FuzzProxyEvents: whatever a proxy says, the launcher takes from it nothing but
// the answer to an order that waits, the name of a credential, and the end of the
// run; and no descriptor.
func FuzzProxyEvents(f *testing.F) {
	addPackets(f,
		proxyEvent{Done: 1}, proxyEvent{Done: 1, Error: "no"}, proxyEvent{Done: 2}, proxyEvent{Refresh: "token"}, proxyEvent{Stop: "over"}, proxyEvent{Fatal: "broken"},
		proxyEvent{Ready: true}, proxyEvent{Done: 1, Stats: &proxy.Stats{Denied: 3}}, proxyEvent{Done: -1, Refresh: "x"},
	)
	sent := newSentFile(f)
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		if len(b) > 60<<10 || len(b) == 0 {
			return
		}
		ours, theirs, err := sandbox.NewChannelPair()
		if err != nil {
			t.Fatal(err)
		}
		px := newProxyClient(proxyNeeds{record: func(audit.Event) error { return nil }, say: func(string) {}})
		l := newProxyLife("proxy", ours)
		waits := pendingOrder{answer: make(chan proxyEvent, 1), force: &inForce{}}
		waits.force.policy.Name = "new"
		px.inForce.policy.Name, px.pending[1] = "old", waits
		sent.send(t, int(theirs.File().Fd()), b, int(n%4))
		_ = theirs.Close()
		px.listen(l)
		l.close()
		sent.wantNone(t, b)
		var e proxyEvent
		valid := json.Unmarshal(b, &e) == nil
		over := valid && e.Done <= 0 && e.Refresh == ""
		if px.isOver() != over || len(px.events) > 0 != over {
			t.Fatalf("%q: got the end of the run %v, want %v", b, px.isOver(), over)
		}
		if asked := valid && e.Done <= 0 && e.Refresh != ""; len(px.refresh) > 0 != asked {
			t.Fatalf("%q: got %d credentials to read again, want %v", b, len(px.refresh), asked)
		}
		answered := valid && e.Done == 1
		if len(waits.answer) > 0 != answered || (px.inForce.policy.Name == "new") != (answered && e.Error == "") {
			t.Fatalf("%q: got the order answered %v and %q in force", b, len(waits.answer) > 0, px.inForce.policy.Name)
		}
	})
}

// FuzzSealed: a policy and its secrets that come in sealed files are taken only as
// they were sealed: every other file is refused as a whole.
func FuzzSealed(f *testing.F) {
	p := somePolicy(f)
	f.Add(p.JSON(), []byte("{}"))
	f.Add([]byte("{}"), []byte("{}"))
	f.Add(append(p.JSON(), '}'), []byte("{}"))
	f.Add(p.JSON()[:100], []byte(`{"Values":null}`))
	f.Fuzz(func(t *testing.T, pol, secrets []byte) {
		var files []*os.File
		for _, text := range [][]byte{pol, secrets} {
			file, err := sandbox.SealedFile("test", text)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		got, s, err := readSealed(files)
		for _, file := range files {
			if _, closed := file.Stat(); !errors.Is(closed, os.ErrClosed) {
				t.Errorf("%s is still open", file.Name())
			}
		}
		if err != nil {
			return
		}
		again, err := sealed(got, s)
		if err != nil {
			t.Fatal(err)
		}
		back, secretsBack, err := readSealed(again)
		if err != nil || !reflect.DeepEqual(back, got) || !reflect.DeepEqual(secretsBack, s) {
			t.Fatalf("got %+v back (%v), want %+v", back, err, got)
		}
		if got.Digest == "" {
			t.Fatalf("%q was taken, which has no digest", pol)
		}
	})
}
