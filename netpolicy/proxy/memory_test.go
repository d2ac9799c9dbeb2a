package proxy

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// memoryFile is a new memory; open maps it as each proxy does.
func memoryFile(t *testing.T, size int64) (open func() *Memory) {
	t.Helper()
	path := newMemoryFile(t, size)
	return func() *Memory {
		m, err := openMemoryFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

func newMemoryFile(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memory")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func openMemoryFile(path string) (*Memory, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return OpenMemory(f)
}

// serverOn is a proxy of the run whose memory that is.
func serverOn(t *testing.T, m *Memory, budget policy.TrafficBudget) *Server {
	t.Helper()
	record, err := audit.Open(filepath.Join(t.TempDir(), "audit.jsonl"), "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = record.Close() })
	return recalled(t, &Server{Memory: m, Audit: record, Rules: Rules{Traffic: budget}})
}

func recalled(t *testing.T, s *Server) *Server {
	t.Helper()
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Recall(); err != nil {
		t.Fatal(err)
	}
	return s
}

func host(t *testing.T, name string) netpolicy.Host {
	t.Helper()
	h, err := netpolicy.ParseHost(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// An address stands for the same name in every proxy of the run, and one that no
// proxy gave stands for none.
func TestAddressesOutliveTheProxy(t *testing.T) {
	open := memoryFile(t, MemorySize)
	first := serverOn(t, open(), policy.TrafficBudget{})
	given := map[string]string{}
	for i := range 50 {
		name := fmt.Sprintf("n%d.example.org", i)
		a, _, ok := first.names.addr(host(t, name), first.Memory, func() bool { return i%2 == 0 })
		if !ok {
			t.Fatalf("%s: got no address", name)
		}
		given[name] = a.String()
	}
	second := serverOn(t, open(), policy.TrafficBudget{})
	for i := 49; i >= 0; i-- {
		name := fmt.Sprintf("n%d.example.org", i)
		a, fresh, ok := second.names.addr(host(t, name), second.Memory, func() bool { return true })
		if !ok || fresh || a.String() != given[name] {
			t.Errorf("%s: got %v (new: %v), want %s", name, a, fresh, given[name])
		}
		if back, ok := second.names.name(a); !ok || back.String() != name {
			t.Errorf("%v: got %v, want %s", a, back, name)
		}
	}
	if got := second.names.denied; got != 25 {
		t.Errorf("names that no rule mentions: got %d, want 25", got)
	}
	next := syntheticAt(50)
	if h, ok := second.names.name(next); ok {
		t.Errorf("%v: got %v, want no name: nobody gave it", next, h)
	}
	if a, fresh, _ := second.names.addr(host(t, "other.example.org"), second.Memory, func() bool { return true }); !fresh || a != next {
		t.Errorf("another name: got %v, want %v", a, next)
	}
}

// Where the memory is full, a further name gets no address: the next proxy would
// not know it. Where hosts are counted, a further one is refused.
func TestFullMemory(t *testing.T) {
	open := memoryFile(t, minMemory)
	s := serverOn(t, open(), policy.TrafficBudget{Hosts: 1 << 20})
	n := 0
	for ; n < 1<<12; n++ {
		if _, _, ok := s.names.addr(host(t, fmt.Sprintf("n%d.%s.example.org", n, strings.Repeat("x", 40))), s.Memory, func() bool { return true }); !ok {
			break
		}
	}
	if n == 0 || n == 1<<12 {
		t.Fatalf("got %d names, want some and then no more", n)
	}
	if err := s.admit(host(t, strings.Repeat("y", 60)+".example.org")); err == nil {
		t.Error("a further host: got admitted, want it refused")
	}
	if again := serverOn(t, open(), policy.TrafficBudget{}); len(again.names.byAddr) != n {
		t.Errorf("got %d names, want %d", len(again.names.byAddr), n)
	}
}

// What was sent stays sent, and what a tunnel may have been sending counts.
func TestTrafficOutlivesTheProxy(t *testing.T) {
	open := memoryFile(t, MemorySize)
	budget := policy.TrafficBudget{BytesOut: 1000, Hosts: 2}
	s := serverOn(t, open(), budget)
	for _, name := range []string{"a.example.org", "b.example.org"} {
		if err := s.admit(host(t, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.spend(600); err != nil {
		t.Fatal(err)
	}
	s.counters().slices.Add(300) // a tunnel that is under way
	s = serverOn(t, open(), budget)
	if got := s.Traffic(); got != (Traffic{BytesOut: 900, Hosts: 2}) {
		t.Errorf("got %+v, want 900 bytes to 2 hosts", got)
	}
	if err := s.admit(host(t, "a.example.org")); err != nil {
		t.Errorf("a host that was reached: got %v, want it admitted", err)
	}
	if err := s.admit(host(t, "c.example.org")); err == nil {
		t.Error("one host more: got it admitted")
	}
	if err := s.spend(101); err == nil {
		t.Error("more than is left: got it spent")
	}
	s = serverOn(t, open(), budget)
	if err := s.spend(1); err == nil {
		t.Error("after the end of the budget: got a byte spent, want none in the next proxy either")
	}
	if err := serverOn(t, open(), policy.TrafficBudget{BytesOut: 2000}).spend(1); err != nil {
		t.Errorf("a larger budget: got %v, want it to count", err)
	}
}

// Models: what was used stays used, and what was under way is charged and on record.
func TestModelsOutliveTheProxy(t *testing.T) {
	open := memoryFile(t, MemorySize)
	s := serverOn(t, open(), policy.TrafficBudget{})
	need := inference.Need{Input: 10, Output: 50, Choices: 1}
	for range 3 {
		h, d, _ := s.models.Reserve(time.Now(), policy.Budget{}, need)
		if d != nil {
			t.Fatal(d.Reason)
		}
		s.models.Settle(time.Now(), policy.Budget{}, h, inference.Usage{Input: 10, Output: 5})
	}
	s.models.Reserve(time.Now(), policy.Budget{}, need)
	s = serverOn(t, open(), policy.TrafficBudget{})
	if got, want := s.Models(), (inference.Totals{Requests: 4, Input: 40, Output: 65}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	text, err := os.ReadFile(s.Audit.File().Name())
	if err != nil || !bytes.Contains(text, []byte("charged in full")) {
		t.Errorf("the record: got %s (%v), want the calls that were lost", text, err)
	}
}

func TestTokensOutliveTheProxy(t *testing.T) {
	open := memoryFile(t, MemorySize)
	s := serverOn(t, open(), policy.TrafficBudget{})
	until := time.Now().Add(time.Hour).Round(0)
	for i := range 3 {
		s.grants.byName = map[string]keyedGrant{"gh": {"key", &grant{}}, "other": {"key2", &grant{}}}
		s.keepTokens("gh", keptGrant{Refresh: fmt.Sprintf("refresh-%d", i), Access: "access", Until: until})
		s.keepTokens("other", keptGrant{Refresh: "other"})
	}
	s.keepTokens("other", keptGrant{Refresh: strings.Repeat("x", tokensRoom)}) // does not fit
	s = serverOn(t, open(), policy.TrafficBudget{})
	got := s.grants.byName["gh"]
	if got.key != "key" || got.grant == nil || got.grant.refresh != "refresh-2" || got.grant.access != "access" || !got.grant.until.Equal(until) {
		t.Errorf("got %+v, want the newest tokens", got)
	}
	if other := s.grants.byName["other"]; other.key != "key2" || other.grant.refresh != "other" {
		t.Errorf("other: got %+v, want what fitted", other)
	}
}

// A memory of another version, of another size or with nonsense in it is refused.
func TestDamagedMemory(t *testing.T) {
	for name, damage := range map[string]func(m *Memory){
		"version": func(m *Memory) { m.magic++ },
		"length":  func(m *Memory) { m.journal.Store(int64(len(m.all))) },
		"entry":   func(m *Memory) { m.all[journalAt+1] = 200; m.journal.Store(3) },
		"name":    func(m *Memory) { copy(m.all[journalAt:], "n\x01 "); m.journal.Store(3) },
		"tokens":  func(m *Memory) { copy(m.tokensOf(0), "\xff\xff\xff\xff") },
		"balance": func(m *Memory) { m.balance(0).Total.Money = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			path := newMemoryFile(t, minMemory)
			m, err := openMemoryFile(path)
			if err != nil {
				t.Fatal(err)
			}
			damage(m)
			m, err = openMemoryFile(path)
			if err == nil {
				s := &Server{Memory: m}
				defer func() { _ = s.Close() }()
				err = s.Recall()
			}
			if err == nil {
				t.Error("got no error")
			}
		})
	}
}

// The next proxy signs for what programs inside trust already.
func TestAuthorityGoesOn(t *testing.T) {
	first, err := NewAuthority(nil)
	if err != nil {
		t.Fatal(err)
	}
	exported, err := first.Export()
	if err != nil {
		t.Fatal(err)
	}
	second, err := LoadAuthority(exported, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := second.leafFor(host(t, "api.example.org"))
	if err != nil {
		t.Fatal(err)
	}
	client, server := net.Pipe()
	defer client.Close()
	go func() { _ = tls.Server(server, &tls.Config{Certificates: []tls.Certificate{*leaf}}).Handshake() }()
	if err := tls.Client(client, &tls.Config{ServerName: "api.example.org", RootCAs: poolOf(t, first)}).Handshake(); err != nil {
		t.Errorf("got %v, want the first one's certificate to vouch for it", err)
	}
	if _, err := LoadAuthority(first.CertPEM(), nil); err == nil || strings.Contains(err.Error(), "CERTIFICATE") {
		t.Errorf("without a key: got %v, want an error without its text", err)
	}
	if _, err := LoadAuthority(bytes.Replace(exported, []byte("A"), []byte("B"), 1), nil); err == nil {
		t.Error("damaged: got no error")
	}
}

// While nobody judges, connections are reset and questions fail, at once.
func TestDoorsWithoutAProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{}, 2)
	go func() { RefuseTCP(l); ended <- struct{}{} }()
	go func() { _ = RefuseDNS(pc); ended <- struct{}{} }()
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			_, err = io.ReadAll(c)
			_ = c.Close()
		}
		if err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("connection: got %v, want a reset", err)
		}
	}
	c, err := net.Dial("udp4", pc.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("api.example.org."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	query, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, junk := range [][]byte{{}, {1, 2, 3}, bytes.Repeat([]byte{0xff}, 600)} {
		_, _ = c.Write(junk) // is not answered, and ends nothing
	}
	if _, err := c.Write(query); err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	var a dnsmessage.Message
	if err := a.Unpack(buf[:n]); err != nil || a.ID != 7 || !a.Response || a.RCode != dnsmessage.RCodeServerFailure || len(a.Answers) != 0 || len(a.Questions) != 1 {
		t.Errorf("got %+v (%v), want SERVFAIL and nothing else", a, err)
	}
	_ = l.Close()
	_ = pc.Close()
	<-ended
	<-ended
}
