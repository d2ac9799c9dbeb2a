package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// The proxy never dials itself, however its address is written and by whatever
// name, also where the policy opens the loopback range (corpus C28).
func TestProxyDoesNotDialItself(t *testing.T) {
	w := newWorld(t, testNetwork())
	l := w.listen()
	door := l.Addr().String()
	_, port, err := net.SplitHostPort(door)
	if err != nil {
		t.Fatal(err)
	}
	number, _ := strconv.Atoi(port)
	n := policy.Network{
		Rules:   []policy.Rule{{Name: "local", Any: true, Protocol: policy.ProtocolTCP, Ports: []int{number, 5432}}},
		Private: []policy.PrivateRange{{CIDR: "127.0.0.0/8", Reason: "test"}, {CIDR: "::1", Reason: "test"}},
	}
	if w.srv.Rules.Engine, err = netpolicy.Compile(n); err != nil {
		t.Fatal(err)
	}
	w.names["itself.example.org"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	w.names["second.example.org"] = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::ffff:127.0.0.1")}
	w.routes[door] = door
	w.serveRaw("db.example.org", 5432, func(c net.Conn) { _, _ = io.Copy(c, c) })
	w.explicitOn(l, testToken)
	w.routes["127.0.0.1:5432"] = w.routes[w.names["db.example.org"][0].String()+":5432"]
	for target, reached := range map[string]bool{
		"127.0.0.1:5432":              true, // control: the range is open
		"127.0.0.1:" + port:           false,
		"[::ffff:127.0.0.1]:" + port:  false,
		"itself.example.org:" + port:  false,
		"second.example.org:" + port:  false,
		"ITSELF.example.org.:" + port: false,
	} {
		if got := w.connects(door, target); got != reached {
			t.Errorf("%s: got carried %v, want %v", target, got, reached)
		}
	}
	if _, dials := w.seen(); len(dials) != 1 {
		t.Errorf("dials: got %v, want the control alone", dials)
	}
	w.wantNoFault()
}

// connects asks an explicit proxy for a tunnel and tells whether it carries.
func (w *world) connects(door, target string) bool {
	w.t.Helper()
	c, err := net.Dial("tcp", door)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: %s\r\n\r\n", target, target, basic(testToken))
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil || !strings.Contains(line, "200") {
		return false
	}
	if blank, err := in.ReadString('\n'); err != nil || blank != "\r\n" {
		return false
	}
	if _, err := io.WriteString(c, "ping"); err != nil {
		return false
	}
	b := make([]byte, 4)
	_, err = io.ReadFull(in, b)
	return err == nil && string(b) == "ping"
}
