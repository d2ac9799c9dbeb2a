package proxy

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// oddRequests makes requests of which each part is now and then one that
// servers are known to read differently.
type oddRequests struct{ *rand.Rand }

// pick gives the first choice mostly, and one of the others now and then.
func (g oddRequests) pick(plain string, odd ...string) string {
	if g.IntN(6) != 0 {
		return plain
	}
	return odd[g.IntN(len(odd))]
}

// next gives the bytes of one request or two.
func (g oddRequests) next() []byte {
	text := g.request()
	if g.IntN(4) == 0 {
		text += g.request()
	}
	if g.IntN(12) == 0 { // one byte goes astray
		i := g.IntN(len(text))
		text = text[:i] + string([]byte{byte(g.IntN(256))}) + text[i+g.IntN(2):]
	}
	return []byte(text)
}

func (g oddRequests) request() string {
	end := "\r\n"
	if g.IntN(40) == 0 {
		end = g.pick("\n", "\r", "\n\r", "\r\r\n")
	}
	var b strings.Builder
	b.WriteString(g.pick("", "\r\n", "\n", " "))
	method := g.pick(g.pick("POST", "GET", "PUT", "OPTIONS", "DELETE"), "get", "GE T", "PROPFIND", "X-Y", "GET\t", "CONNECT", "TRACE", "PRI", "P@ST", "")
	version := g.pick("HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "HTTP/1.10", "HTTP/2.0", "http/1.1", "HTTP/01.1", "HTTP/1.1 ", "", "HTTP/0.9")
	fmt.Fprintf(&b, "%s%s%s%s%s%s", method, g.pick(" ", "  ", "\t", "\x0b"), g.target(), g.pick(" ", "  ", "\t"), version, end)
	for _, line := range g.fields() {
		b.WriteString(line + end)
	}
	body := g.body()
	for _, line := range body.fields {
		b.WriteString(line + end)
	}
	b.WriteString(end + body.text)
	return b.String()
}

func (g oddRequests) target() string {
	return g.pick("/a", "/", "*", "/a/../b", "/a/%2e%2e/b", "/a//b", "/./a", "/%61", "/a%2fb", "/a%5cb", `/a\b`, "/a;x=1", "/..;/a", "/a?x=/../b", "/a?",
		"/a?b?c", "/a#f", "/é", "/a%00", "/%zz", "/%c0%ae", "//other.example.org/x", "http://"+diffHost+"/x", "http://other.example.org/x", "http://"+diffHost+"?q=1",
		"https://"+diffHost+"/x", "a", "", "/a b", "/a\x01", "/a%20b", "/%E2%82%AC", "/a%252e", "?x", "http://u@"+diffHost+"/", "/a/.", "/a/..", "/%2541")
}

func (g oddRequests) fields() []string {
	host := "Host" + g.pick(": ", ":", " : ", ":\t", ":  ") + g.pick(diffHost, diffHost+":80", "API.example.ORG", diffHost+".", "other.example.org", "", diffHost+":81",
		"u@"+diffHost, diffHost+"/x", "["+diffHost+"]", diffHost+", other.example.org", diffHost+"\x00", diffHost+":080", diffHost+":")
	all := []string{host}
	odd := []string{
		host, "Host: other.example.org", "host: " + diffHost, " folded: yes", "\tfolded", "No-Colon", ": empty", "X : y", "X\x00: y", "X: a\x00b", "X: a\rb", "X: é",
		"Connection: close", "Connection: keep-alive, Host", "Connection: content-length", "Connection: transfer-encoding", "Expect: 100-continue", "Expect: 200-ok",
		"Upgrade: h2c", "Upgrade: websocket", "TE: trailers", "Trailer: Content-Length", "X_Y: z", "Content_Length: 5", "Transfer_Encoding: chunked",
		"X-Http-Method-Override: DELETE", "Cookie: a=b", "X: " + strings.Repeat("v", 300), "X:", "X:  y  ", "Max-Forwards: 0", "\xffX: y", "X(y): z",
	}
	for g.IntN(3) == 0 {
		line := odd[g.IntN(len(odd))]
		if i := g.IntN(len(all) + 1); g.IntN(2) == 0 {
			all = append(all[:i], append([]string{line}, all[i:]...)...)
			continue
		}
		all = append(all, line)
	}
	return all
}

// oddBody is a body and the fields that frame it.
type oddBody struct {
	fields []string
	text   string
}

func (g oddRequests) body() oddBody {
	const text = "hello"
	switch g.IntN(5) {
	case 0, 1:
		return oddBody{}
	case 2:
		name := "Content-Length" + g.pick(": ", ":", " : ", "\t: ", ":\t")
		b := oddBody{[]string{name + g.pick("5", "05", "+5", "0x5", "5,5", "5, 5", "-5", "5 ", "4", "6", "0", "5\x0b", "18446744073709551621", "5.0", "1e1", "", "５")}, text}
		return g.twice(b, "Content-Length: 5", "Content-Length: 3", "Transfer-Encoding: chunked", "Transfer-Encoding: identity")
	default:
		name := "Transfer-Encoding" + g.pick(": ", ":", " : ", ":\t", ":\x0b")
		b := oddBody{[]string{name + g.pick("chunked", "Chunked", "CHUNKED", "xchunked", "chunked, identity", "identity, chunked", "gzip, chunked", "chunked;x=1",
			"chunked ", "\x0bchunked", "chunked,", ",chunked", `"chunked"`, "chu nked", "identity", "", "chunked, chunked")}, g.chunks()}
		return g.twice(b, "Content-Length: 5", "Content-Length: 0", "Transfer-Encoding: identity", "Transfer-Encoding: chunked", "Trailer: X-T")
	}
}

func (g oddRequests) twice(b oddBody, more ...string) oddBody {
	if g.IntN(5) == 0 {
		b.fields = append(b.fields, more[g.IntN(len(more))])
	}
	return b
}

func (g oddRequests) chunks() string {
	end := "\r\n"
	if g.IntN(12) == 0 {
		end = g.pick("\n", "\r", "\n\r", " \r\n")
	}
	size := g.pick("5", "05", "5;a=b", "5 ;a", "0x5", "+5", "5\t", "5;a=\"\nb\"", "fffffffffffffff5", "-1", "5 ", " 5", "6", "4", "", "5;", "00000000000000000000005", "5\x00")
	tail := g.pick("0\r\n\r\n", "0\r\nX-T: v\r\n\r\n", "0\r\nContent-Length: 9\r\n\r\n", "00\r\n\r\n", "0;x\r\n\r\n", "0\r\n", "0\n\n", "0\r\n\n", "0\r\n folded\r\n\r\n",
		"0\r\nX-T\r\n\r\n", "0 \r\n\r\n", "")
	return size + end + "hello" + g.pick("\r\n", "\n", "", "\r\nx", "\r") + tail
}
