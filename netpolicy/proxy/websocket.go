package proxy

import (
	"crypto/rand"
	"crypto/sha1" // #nosec G505: what RFC 6455 asks for, and nothing rests on it
	"encoding/base64"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// The fields of a WebSocket handshake as they are written, which some servers
// insist on, and the prefix that they have once they were read.
const (
	wsKeyField      = "Sec-WebSocket-Key"
	wsAcceptField   = "Sec-WebSocket-Accept"
	wsProtocolField = "Sec-WebSocket-Protocol"
	wsVersionField  = "Sec-WebSocket-Version"
	wsFieldPrefix   = "Sec-Websocket-"
)

// webSocket checks a handshake and writes it anew, with a key of our own and
// without extensions: compressed messages could be judged only by inflating them.
func (fl *flow) webSocket() *refusal {
	h := fl.out.Header
	keys, versions := h[wsFieldPrefix+"Key"], h[wsFieldPrefix+"Version"]
	asked := tokens(h[wsFieldPrefix+"Protocol"])
	reason := ""
	switch {
	case !fl.judged.WebSocket:
		return forbidden(fl.f.host, "a rule for WebSocket allows no other request")
	case fl.out.Method != http.MethodGet || fl.out.Body != http.NoBody:
		reason = "a WebSocket is asked for with GET and without a body"
	case len(versions) != 1 || versions[0] != "13":
		reason = wsVersionField + " is not 13"
	case len(keys) != 1 || !isKey(keys[0]):
		reason = wsKeyField + " is not 16 bytes in base64"
	case slices.ContainsFunc(asked, func(p string) bool { return !isTokenString(p) }):
		reason = "malformed " + wsProtocolField
	}
	if reason != "" {
		return malformed(http.StatusBadRequest, reason)
	}
	for name := range h {
		if strings.HasPrefix(dashed(name), wsFieldPrefix) {
			delete(h, name)
		}
	}
	var b [16]byte
	_, _ = rand.Read(b[:])
	key := base64.StdEncoding.EncodeToString(b[:])
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	h[wsVersionField], h[wsKeyField] = []string{"13"}, []string{key}
	if len(asked) > 0 {
		h[wsProtocolField] = []string{strings.Join(asked, ", ")}
	}
	fl.socket = &socket{fl: fl, expect: acceptOf(key), answer: acceptOf(keys[0]), asked: asked}
	fl.socket.claim.Store(fl.decision.Claim)
	fl.note = append(fl.note, func(e *audit.Event) { e.Operation = "websocket" })
	return nil
}

func isKey(s string) bool {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return err == nil && len(b) == 16
}

// acceptOf is the answer to a key (RFC 6455, section 4.2.2).
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // #nosec G401
	return base64.StdEncoding.EncodeToString(sum[:])
}

// accept checks the server's 101 and takes its connection. It gives what is
// wrong, or "".
func (k *socket) accept(resp *http.Response) string {
	h := resp.Header
	chosen := h[wsFieldPrefix+"Protocol"]
	server, ok := resp.Body.(io.ReadWriteCloser)
	switch {
	case !ok:
		return "the server switched protocols in a way that cannot be carried"
	case !offersOnly(h["Upgrade"], "websocket") || !slices.ContainsFunc(tokens(h["Connection"]), isUpgrade):
		return "the server switched to something else than WebSocket"
	case len(h[wsFieldPrefix+"Accept"]) != 1 || h[wsFieldPrefix+"Accept"][0] != k.expect:
		return "the server's " + wsAcceptField + " does not answer the key"
	case len(h[wsFieldPrefix+"Extensions"]) > 0:
		return "the server chose a WebSocket extension that nobody offered"
	case len(chosen) > 1 || len(chosen) == 1 && !slices.Contains(k.asked, chosen[0]):
		return "the server chose a WebSocket protocol that nobody offered"
	}
	resp.Body = http.NoBody
	k.connection = server
	k.fl.ends = append(k.fl.ends, func() { _ = server.Close() })
	for name := range h {
		if strings.HasPrefix(dashed(name), wsFieldPrefix) {
			delete(h, name)
		}
	}
	if len(chosen) == 1 {
		k.protocol = chosen[0]
	}
	return ""
}

func isUpgrade(option string) bool { return strings.EqualFold(option, "upgrade") }

// webSocket answers with 101 and carries frames until the socket is closed.
func (h *http1) webSocket(fl *flow, resp *http.Response) {
	k := fl.socket
	resp.Header["Connection"], resp.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	resp.Header[wsAcceptField] = []string{k.answer}
	if k.protocol != "" {
		resp.Header[wsProtocolField] = []string{k.protocol}
	}
	if h.writeHead(resp.StatusCode, resp.Header, false) != nil || h.out.Flush() != nil {
		return
	}
	k.carry(h)
	h.linger()
}
