package peers

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	allowedMessage = `{"op":"read"}`
	deniedMessage  = `{"op":"write"}`
)

// TestWebSocket runs the client of ws and that of coder/websocket against both
// servers: a rule lets messages through by what they say.
func TestWebSocket(t *testing.T) {
	p := newPlace(t)
	p.RequireCommands(t, []string{"node"})
	p.serveNode(t)
	clients := map[string][]string{"ws": {"node", "ws-client.cjs"}, "coder": {p.goClient(t), "ws"}}
	servers := map[string]int{"ws": p.nodePort, "coder": p.port}
	cases := []struct {
		name, path   string
		messages     []string
		bare, inside string // what the client prints, pongs apart
	}{
		{
			"allowed", "/ws/echo",
			[]string{allowedMessage, allowedMessage},
			"open|message " + allowedMessage + "|message " + allowedMessage + "|close 1000",
			"open|message " + allowedMessage + "|message " + allowedMessage + "|close 1000",
		},
		{
			"denied message", "/ws/echo",
			[]string{allowedMessage, deniedMessage},
			"open|message " + allowedMessage + "|message " + deniedMessage + "|close 1000",
			"open|message " + allowedMessage + "|close 1008",
		},
		{
			"denied path", "/ws/other",
			[]string{allowedMessage},
			"open|message " + allowedMessage + "|close 1000", "refused 403",
		},
	}
	for client, argv := range clients {
		for server, port := range servers {
			for _, c := range cases {
				t.Run(client+" to "+server+" "+c.name, func(t *testing.T) {
					address := fmt.Sprintf("wss://%s:%d%s", peerHost, port, c.path)
					for _, inside := range []bool{false, true} {
						all := append(append(append([]string{}, argv...), address), c.messages...)
						got := p.run(t, inside, all...)
						want := c.bare
						if inside {
							want = c.inside
						}
						if said := withoutPongs(got.Out); said != want {
							t.Errorf("inside %v: got %q, want %q\n%s", inside, said, want, got.Err)
						}
					}
				})
			}
		}
	}
}

// withoutPongs joins the lines of a client; a pong comes when it comes.
func withoutPongs(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "pong are you there" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "|")
}

// TestGRPC runs a client of gRPC: unary, streams in one and in both directions, a
// deadline, and a call that is denied.
func TestGRPC(t *testing.T) {
	p := newPlace(t)
	client := p.goClient(t)
	const others = "unary OK one|stream 3|both 3|deadline DeadlineExceeded|"
	for inside, want := range map[bool]string{false: others + "empty OK", true: others + "empty PermissionDenied"} {
		got := p.run(t, inside, client, "grpc", fmt.Sprintf("%s:%d", peerHost, p.port))
		if said := strings.Join(strings.Split(strings.TrimSpace(got.Out), "\n"), "|"); said != want {
			t.Errorf("inside %v: got %q, want %q\n%s", inside, said, want, got.Err)
		}
	}
}

// TestChromium has a browser open sockets and streams of events from a page that
// came over HTTP/2.
func TestChromium(t *testing.T) {
	p := newPlace(t)
	chromium := p.requireChromium(t)
	const allowed = "/ws/echo " + allowedMessage + " -> " + allowedMessage + "\n"
	wants := map[bool]string{
		false: allowed + "/ws/echo " + deniedMessage + " -> " + deniedMessage + "\n/ws/other " + allowedMessage + " -> " + allowedMessage +
			"\n/events -> 0,1,2\n/private/events -> 0,1,2\nh2",
		true: allowed + "/ws/echo " + deniedMessage + " -> closed 1008\n/ws/other " + allowedMessage + " -> closed 1006" +
			"\n/events -> 0,1,2\n/private/events -> error\nh2",
	}
	for _, inside := range []bool{false, true} {
		t.Run(map[bool]string{false: "bare", true: "inside"}[inside], func(t *testing.T) {
			p.served.reset()
			// Chromium keeps authorities in a database of its own; whom it trusts is
			// not what is tested.
			argv := []string{
				chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--ignore-certificate-errors",
				fmt.Sprintf("--user-data-dir=%s/profile-%v", p.work, inside), "--dump-dom", fmt.Sprintf("https://%s:%d/page", peerHost, p.port),
			}
			if !inside {
				argv = append(argv, "--host-resolver-rules=MAP *.test 127.0.0.1")
			}
			got := p.run(t, inside, argv...)
			select {
			case said := <-p.served.result:
				if said != wants[inside] {
					t.Errorf("got:\n%s\nwant:\n%s", said, wants[inside])
				}
			case <-time.After(time.Second):
				t.Errorf("got no result\n%.2000s\n%.2000s", got.Out, got.Err)
			}
		})
	}
}

// TestCurl reads a stream of events and sends bodies with both versions of HTTP.
func TestCurl(t *testing.T) {
	p := newPlace(t)
	p.RequireCommands(t, []string{"curl"})
	base := fmt.Sprintf("https://%s:%d", peerHost, p.port)
	small, large := strings.Repeat("x", 900), strings.Repeat("x", 5000)
	cases := []struct {
		name         string
		args         []string
		bare, inside string // in what curl prints
	}{
		// The stream never ends: curl gives up after what it was to wait.
		{"events", []string{"--max-time", "1.5", base + "/events"}, "data: 2", "data: 2"},
		{"denied events", []string{"--max-time", "1.5", base + "/private/events"}, "data: 2", `"error":"policy_denied"`},
		{"body", []string{"--data-binary", small, base + "/result"}, "200", "200"},
		{"body that is too long", []string{"--data-binary", large, base + "/result"}, "200", "does not allow a body of 5000 bytes"},
		{
			"body of unknown length that is too long",
			[]string{"-H", "Transfer-Encoding: chunked", "-H", "Content-Length:", "--data-binary", large, base + "/result"},
			"200", "413",
		},
	}
	for _, version := range []string{"--http1.1", "--http2"} {
		for _, c := range cases {
			t.Run(version[2:]+" "+c.name, func(t *testing.T) {
				for _, inside := range []bool{false, true} {
					argv := append([]string{"curl", "-sSN", version, "-w", "\n%{http_code}\n"}, c.args...)
					want := c.inside
					if !inside {
						argv, want = append(argv, "--resolve", fmt.Sprintf("%s:%d:127.0.0.1", peerHost, p.port)), c.bare
					}
					if got := p.run(t, inside, argv...); !strings.Contains(got.Out, want) {
						t.Errorf("inside %v: got %q, want %q in it\n%s", inside, got.Out, want, got.Err)
					}
				}
			})
		}
	}
}
