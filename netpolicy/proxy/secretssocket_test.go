package proxy

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gobwas/ws"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// secretSockets has sockets with a credential at api.example.org.
func secretSockets(t *testing.T, bound string) *world {
	t.Helper()
	n := socketNetwork()
	if bound == "api.example.org" {
		n.Rules[0].Credential, n.Rules[1].Credential = "gh", "gh"
	}
	n.Rules = append(n.Rules, policy.Rule{Name: "wild", Host: "*.wild.example.org"})
	w := newWorld(t, n)
	vault, err := credential.New(map[string]policy.Credential{"gh": {Attach: "bearer", Hosts: []policy.Name{{Text: bound}}}},
		map[string]credential.Values{"gh": {Secret: liveSecret, Placeholder: placeholder}})
	if err != nil {
		t.Fatal(err)
	}
	w.srv.Rules.Credentials = vault
	return w
}

// TestSocketMessagesAreSearched has a placeholder in one frame, over two, and in
// a ping; none arrives.
func TestSocketMessagesAreSearched(t *testing.T) {
	half := len(placeholder) / 2
	for name, frames := range map[string][]ws.Frame{
		"one frame":   {ws.NewTextFrame([]byte("a " + placeholder))},
		"binary":      {ws.NewBinaryFrame([]byte("a " + placeholder))},
		"two frames":  {ws.NewFrame(ws.OpText, false, []byte("a "+placeholder[:half])), ws.NewFrame(ws.OpContinuation, true, []byte(placeholder[half:]))},
		"ping":        {ws.NewPingFrame([]byte(placeholder))},
		"close":       {ws.NewCloseFrame(ws.NewCloseFrameBody(1000, placeholder))},
		"live secret": {ws.NewTextFrame([]byte(liveSecret))},
	} {
		t.Run(name, func(t *testing.T) {
			w := secretSockets(t, "other.example.org")
			got := make(chan string, 10)
			w.serveSockets(443, func(e *wsEnd) { got <- strings.Join(e.all(), " ") })
			client := w.socket(443, "/ws/any")
			client.say("control")
			for _, f := range frames {
				client.send(f)
			}
			if end := strings.Join(client.all(), " "); !strings.Contains(end, "close:1008") {
				t.Errorf("client: got %q, want close:1008", end)
			}
			if all := <-got; !strings.Contains(all, "control") || strings.Contains(all, "ghp_") {
				t.Errorf("server: got %q, want the control alone", all)
			}
			w.wantEvent("a secret that was about to leave", func(e audit.Event) bool {
				return e.Kind == audit.KindSecret && e.Verdict == audit.Deny && e.Credential == "gh"
			})
			w.wantClean()
		})
	}
}

// TestSocketGetsTheCredential: the handshake has it, and what the server says of
// it is taken out.
func TestSocketGetsTheCredential(t *testing.T) {
	w := secretSockets(t, "api.example.org")
	w.serveSockets(443, func(e *wsEnd) {
		e.say("you sent " + e.head.Header.Get("Authorization"))
		_ = e.next()
	})
	client := w.socket(443, "/ws/any")
	if got, want := client.next(), "text:you sent Bearer "+placeholder; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	w.wantClean()
}

// TestTunnelToANameThatHoldsTheSecret: nothing looks at what a tunnel carries,
// but its name does not leave.
func TestTunnelToANameThatHoldsTheSecret(t *testing.T) {
	w := secretSockets(t, "api.example.org")
	reach := func(host string) error {
		w.serve(host, 443, http.NotFoundHandler())
		c, err := net.Dial("tcp", w.door(host, 443))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		return tls.Client(c, &tls.Config{ServerName: host, RootCAs: poolOf(t, w.outside)}).Handshake()
	}
	if err := reach("control.wild.example.org"); err != nil {
		t.Fatalf("control: got %v, want the server", err)
	}
	lookups, dials := w.seen()
	name := strings.ReplaceAll(strings.ToLower(placeholder), "_", "-") + ".wild.example.org"
	if err := reach(name); err == nil {
		t.Error("got the server, want no connection")
	}
	if l, d := w.seen(); len(l) != len(lookups) || len(d) != len(dials) {
		t.Errorf("got lookups %v and dials %v, want none more", l, d)
	}
	w.wantClean()
}
