package web

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
)

// dressed writes the answer; /public/echo?as=WAY repeats the request in one of
// the ways in which servers show what they were sent.
func (v *visit) dressed(r usualRequest, target, status, kind, body string) []byte {
	path, query, _ := strings.Cut(target, "?")
	values, _ := url.ParseQuery(query)
	if path != "/public/echo" || values.Get("as") == "" {
		return plainAnswer(status, kind, body)
	}
	if way := echoes[values.Get("as")]; way != nil {
		shown := strings.Join(r.head.values("authorization"), " ")
		return way(strings.TrimPrefix(shown, "Bearer "), body)
	}
	return plainAnswer("404 Not Found", kind, "no such echo")
}

// echoes give an answer that shows a secret.
var echoes = map[string]func(secret, body string) []byte{
	"upper": func(s, _ string) []byte { return plainAnswer("200 OK", "text/plain", "got "+strings.ToUpper(s)) },
	"hex": func(s, _ string) []byte {
		return plainAnswer("200 OK", "text/plain", "got "+hex.EncodeToString([]byte(s)))
	},
	"base64": func(s, _ string) []byte {
		return plainAnswer("200 OK", "text/plain", "got "+base64.StdEncoding.EncodeToString([]byte("xx"+s)))
	},
	"percent": func(s, _ string) []byte { return plainAnswer("200 OK", "text/plain", "got "+everyPercent(s)) },
	"json": func(s, _ string) []byte {
		return plainAnswer("200 OK", "application/json", `{"got":"`+everyEscape(s)+`"}`)
	},
	"gzip": func(s, _ string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte("got " + s))
		_ = z.Close()
		return packed("gzip", b.String())
	},
	"deflate": func(s, _ string) []byte {
		var b bytes.Buffer
		z := zlib.NewWriter(&b)
		_, _ = z.Write([]byte("got " + s))
		_ = z.Close()
		return packed("deflate", b.String())
	},
	"unnamed-gzip": func(s, _ string) []byte { return packed("br", "got "+s) },
	"field": func(s, _ string) []byte {
		return []byte("HTTP/1.1 200 OK\r\nX-Got: " + s + "\r\nContent-Length: 2\r\n\r\nok")
	},
	"name": func(s, _ string) []byte {
		return []byte("HTTP/1.1 200 OK\r\nX-" + s + ": 1\r\nContent-Length: 2\r\n\r\nok")
	},
	"cookie": func(s, _ string) []byte {
		return []byte("HTTP/1.1 200 OK\r\nSet-Cookie: got=" + s + "\r\nContent-Length: 2\r\n\r\nok")
	},
	"location": func(s, _ string) []byte {
		return []byte("HTTP/1.1 302 Found\r\nLocation: https://other.test/?got=" + s + "\r\nContent-Length: 0\r\n\r\n")
	},
	"hex-field": func(s, _ string) []byte {
		return []byte("HTTP/1.1 200 OK\r\nX-Got: " + hex.EncodeToString([]byte(s)) + "\r\nContent-Length: 2\r\n\r\nok")
	},
	"reason": func(s, _ string) []byte { return []byte("HTTP/1.1 200 " + s + "\r\nContent-Length: 2\r\n\r\nok") },
	"early": func(s, _ string) []byte {
		return []byte("HTTP/1.1 103 Early Hints\r\nLink: </" + s + ">; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	},
	"chunks": func(s, _ string) []byte {
		var b strings.Builder
		b.WriteString("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, "1\r\n%c\r\n", c)
		}
		return []byte(b.String() + "0\r\n\r\n")
	},
	"trailer": func(s, _ string) []byte {
		return []byte("HTTP/1.1 200 OK\r\nTrailer: X-Got\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Got: " + s + "\r\n\r\n")
	},
	"error":   func(s, _ string) []byte { return plainAnswer("401 Unauthorized", "text/html", "<p>"+s) },
	"closing": func(s, _ string) []byte { return []byte("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ngot " + s) },
	"events": func(s, _ string) []byte {
		return plainAnswer("200 OK", "text/event-stream", "data: "+s[:len(s)/2]+s[len(s)/2:]+"\n\n")
	},
	"twice": func(s, _ string) []byte {
		return plainAnswer("200 OK", "text/plain", s+s+" "+strings.Repeat("x", 70000)+s)
	},
	"lines": func(s, _ string) []byte {
		enc := base64.StdEncoding.EncodeToString([]byte(s))
		return plainAnswer("200 OK", "text/plain", enc[:20]+"\r\n"+enc[20:])
	},
}

func packed(coding, body string) []byte {
	return []byte("HTTP/1.1 200 OK\r\nContent-Encoding: " + coding + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(body)) + body)
}

func everyPercent(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "%%%02x", c)
	}
	return b.String()
}

func everyEscape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}
