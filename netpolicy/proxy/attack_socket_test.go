package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
)

// TestSocketEchoInPieces: a server repeats what it was sent, in every way in which
// a secret can come in pieces or outside of messages.
func TestSocketEchoInPieces(t *testing.T) {
	const half = len(liveSecret) / 2
	long := func(before int) []ws.Frame {
		return []ws.Frame{ws.NewTextFrame([]byte(strings.Repeat("A", before) + liveSecret + strings.Repeat("B", 5000)))}
	}
	cases := map[string][]ws.Frame{
		"fragments": {ws.NewFrame(ws.OpText, false, []byte("x"+liveSecret[:half])), ws.NewFrame(ws.OpContinuation, true, []byte(liveSecret[half:]))},
		"single bytes": func() (all []ws.Frame) {
			all = append(all, ws.NewFrame(ws.OpBinary, false, nil))
			for _, c := range []byte(liveSecret) {
				all = append(all, ws.NewFrame(ws.OpContinuation, false, []byte{c}))
			}
			return append(all, ws.NewFrame(ws.OpContinuation, true, nil))
		}(),
		"ping between": {
			ws.NewFrame(ws.OpText, false, []byte(liveSecret[:half])), ws.NewPingFrame([]byte("p")),
			ws.NewFrame(ws.OpContinuation, true, []byte(liveSecret[half:])),
		},
		"ping":  {ws.NewPingFrame([]byte(liveSecret))},
		"pong":  {ws.NewPongFrame([]byte(liveSecret))},
		"close": {ws.NewCloseFrame(ws.NewCloseFrameBody(1000, "no such key "+liveSecret))},
	}
	for _, n := range []int{4096 - len(liveSecret) + 1, 4096 - half, 4090, 32<<10 - 1 - half, 32<<10 - 14 - 1} {
		cases[fmt.Sprintf("after %d bytes", n)] = long(n)
	}
	for name, frames := range cases {
		t.Run(name, func(t *testing.T) {
			w := secretSockets(t, "api.example.org")
			w.serveSockets(443, func(e *wsEnd) {
				e.say("control")
				for _, f := range frames {
					e.send(f)
				}
				e.send(ws.NewCloseFrame(ws.NewCloseFrameBody(1000, "")))
				_ = e.next()
			})
			client := w.socket(443, "/ws/any")
			got, ended := payloads(client)
			client.send(ws.NewCloseFrame(ws.NewCloseFrameBody(1000, "")))
			if !strings.Contains(got, "control") || !ended {
				t.Errorf("got %.80q…, want the control and the end", got)
			}
			if !strings.Contains(got, placeholder[half:]) {
				t.Errorf("got %d bytes without the placeholder, want it in place of the secret", len(got))
			}
			if strings.Contains(got, liveSecret[:half]) || strings.Contains(got, liveSecret[half:]) {
				t.Error("got a part of the secret")
			}
			w.wantClean()
			w.wantNoFault()
		})
	}
}

// payloads gives the content of all frames up to a Close frame.
func payloads(e *wsEnd) (all string, ended bool) {
	_ = e.SetReadDeadline(time.Now().Add(5 * time.Second))
	for {
		f, err := readFrame(e.in)
		if err != nil {
			return all, false
		}
		if all += string(f.Payload); f.Header.OpCode == ws.OpClose {
			return all, true
		}
	}
}
