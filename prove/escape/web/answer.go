package web

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // RFC 6455 wants it
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// plainAnswer is a whole answer of HTTP/1.1.
func plainAnswer(status, kind, body string) []byte {
	return []byte("HTTP/1.1 " + status + "\r\nContent-Type: " + kind + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// answer answers one request and tells whether the connection goes on.
func (v *visit) answer(r usualRequest) bool {
	target := ""
	if targets := r.head.targets(); len(targets) > 0 {
		target = targets[0]
	}
	v.w.remember(v.name + " " + r.head.words[0] + " " + target)
	if key := r.head.values("sec-websocket-key"); len(key) > 0 && len(r.head.values("upgrade")) > 0 {
		v.webSocket(key[0])
		return false
	}
	status, kind, body := v.content(r, target)
	b := v.dressed(r, target, status, kind, body)
	if location := redirectOf(target); location != "" {
		b = []byte("HTTP/1.1 302 Found\r\nLocation: " + location + "\r\nContent-Length: 0\r\n\r\n")
	}
	if r.head.words[0] == "HEAD" {
		b = b[:bytes.Index(b, []byte("\r\n\r\n"))+4]
	}
	_, err := v.Write(b)
	return err == nil
}

// redirectOf gives where /public/redirect?to=URL leads.
func redirectOf(target string) string {
	path, query, _ := strings.Cut(target, "?")
	if path != "/public/redirect" {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	return values.Get("to")
}

var rpcID = regexp.MustCompile(`"id"\s*:\s*("[^"]*"|[0-9]+)`)

// content is what a good server would say.
func (v *visit) content(r usualRequest, target string) (status, kind, body string) {
	status, kind = "200 OK", "application/json"
	id := "1"
	if m := rpcID.FindSubmatch(r.body); m != nil {
		id = string(m[1])
	}
	switch {
	case strings.HasPrefix(target, "/public/echo") || strings.EqualFold(r.head.words[0], "TRACE") || r.head.words[0] == "TRACK":
		return status, "text/plain", string(r.raw) + string(r.body)
	case v.name == "mcp.test":
		body = `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"done"}]}}`
	case v.name == "rpc.test":
		body = `{"jsonrpc":"2.0","id":` + id + `,"result":"done"}`
	case v.name == "gql.test":
		body = `{"data":{"viewer":null}}`
	case v.name == "a-llm.test":
		body = `{"id":"m1","type":"message","role":"assistant","model":"good-1","content":[{"type":"text","text":"done"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`
	case v.name == "g-llm.test":
		body = `{"candidates":[{"content":{"role":"model","parts":[{"text":"done"}]}}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}}`
	case strings.HasSuffix(v.name, "llm.test"):
		body = `{"id":"c1","object":"chat.completion","model":"good-1","choices":[{"index":0,"message":{"role":"assistant","content":"done"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
	default:
		kind, body = "text/plain", "origin "+v.name+" "+r.head.words[0]+" "+target+"\n"
	}
	if bytes.HasPrefix(bytes.TrimSpace(r.body), []byte("[")) {
		body = "[" + body + "]"
	}
	return status, kind, body
}

// remember keeps what was asked, for tests.
func (w *World) remember(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.log) < 1000 {
		w.log = append(w.log, line)
	}
}

// webSocket accepts every upgrade, says what it got, and reads on.
func (v *visit) webSocket(key string) {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // RFC 6455 wants it
	_, err := fmt.Fprintf(v, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	if err != nil {
		return
	}
	start := len(v.kept())
	_ = v.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		if _, err := v.read(); err != nil {
			break
		}
		v.analyse()
		text := unmasked(v.kept()[start:])
		for _, what := range frameFaults(v.kept()[start:]) {
			v.note(what)
		}
		if spelled(texts(text), Word) {
			v.note("the word \"" + Word + "\" in a message")
		}
		for _, secret := range v.w.Secrets {
			if secret != v.w.Right[v.name] && Holds(text, secret) {
				v.note("a secret or a placeholder in a message")
			}
		}
		if tagLike.Match(text) {
			v.tagged(text)
		}
		_, _ = v.Write([]byte{0x81, 2, 'o', 'k'})
	}
}

// tagged lets findings of masked messages carry their numbers.
func (v *visit) tagged(text []byte) {
	v.mu.Lock()
	v.raw = append(v.raw, bytes.Join(tagLike.FindAll(text, -1), []byte(" "))...)
	v.mu.Unlock()
}

// frame is one frame of a WebSocket.
type frame struct {
	first, second byte
	length        uint64
	payload       []byte
}

// frames reads as many frames as there are; a last one may be cut.
func frames(raw []byte) []frame {
	var all []frame
	r := bytes.NewReader(raw)
	for {
		var head [2]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return all
		}
		f := frame{first: head[0], second: head[1], length: uint64(head[1] & 0x7f)}
		switch f.length {
		case 126:
			var n uint16
			_ = binary.Read(r, binary.BigEndian, &n)
			f.length = uint64(n)
		case 127:
			_ = binary.Read(r, binary.BigEndian, &f.length)
		}
		var mask [4]byte
		if f.second&0x80 != 0 {
			_, _ = io.ReadFull(r, mask[:])
		}
		f.payload = make([]byte, min(f.length, uint64(r.Len())))
		_, _ = io.ReadFull(r, f.payload)
		for i := range f.payload {
			f.payload[i] ^= mask[i%4]
		}
		all = append(all, f)
	}
}

// unmasked joins what the messages of a client say, and after that what its
// control frames say, which may stand between the pieces of a message.
func unmasked(raw []byte) []byte {
	var text, control []byte
	for _, f := range frames(raw) {
		if f.first&0x08 != 0 {
			control = append(control, f.payload...)
		} else {
			text = append(text, f.payload...)
		}
	}
	return append(text, control...)
}

// frameFaults gives what RFC 6455 does not let a client send.
func frameFaults(raw []byte) []string {
	var faults []string
	open := false
	for _, f := range frames(raw) {
		opcode, control := f.first&0x0f, f.first&0x08 != 0
		switch {
		case f.second&0x80 == 0:
			faults = append(faults, "a frame without a mask")
		case f.first&0x70 != 0:
			faults = append(faults, "a frame with reserved bits")
		case opcode > 10 || opcode > 2 && opcode < 8:
			faults = append(faults, "a frame with a reserved code")
		case control && (f.first&0x80 == 0 || f.length > 125):
			faults = append(faults, "a control frame in pieces or too long")
		case f.length > 1<<40:
			faults = append(faults, "a frame of more than 1 TiB")
		case !control && opcode == 0 && !open:
			faults = append(faults, "a continuation of nothing")
		case !control && opcode != 0 && open:
			faults = append(faults, "a message inside another")
		}
		if !control {
			open = f.first&0x80 == 0
		}
	}
	return faults
}
