package proxy

import (
	"net/http"
	"net/textproto"
	"strings"
)

// hopByHop are the fields about one connection (RFC 9110, section 7.6.1) and
// about proxies; none of them is forwarded in either direction.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Authentication-Info", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings", "Expect",
}

// aboutClient are the fields in which proxies tell servers about clients. Inside
// a sandbox whoever sets them makes something up.
var aboutClient = []string{
	"Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
	"X-Forwarded-Server", "X-Real-Ip",
}

// methodOverrides are the fields in which some servers look for the real method.
var methodOverrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// dropHopByHop removes what is about one connection, with the fields that
// Connection names. "TE: trailers" is kept: gRPC needs it.
func dropHopByHop(h http.Header) {
	for _, name := range tokens(h["Connection"]) {
		h.Del(name)
	}
	trailers := false
	for _, t := range tokens(h["Te"]) {
		trailers = trailers || strings.EqualFold(t, "trailers")
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
	if trailers {
		h["Te"] = []string{"trailers"}
	}
}

// mayTrail tells whether a field may come after a body: none that frames,
// routes or authenticates a message (RFC 9110, section 6.5.1).
func mayTrail(name string) bool {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Host", "Content-Length", "Content-Encoding", "Content-Type", "Content-Range", "Authorization", "Cookie",
		"Set-Cookie", "Cache-Control", "Max-Forwards", "Range", "If-Match", "If-None-Match", "Date", "Location":
		return false
	}
	for _, list := range [][]string{hopByHop, aboutClient, methodOverrides} {
		for _, n := range list {
			if n == name {
				return false
			}
		}
	}
	return isTokenString(name)
}

// badFields gives the name of a response field that must not be written out,
// or "".
func badFields(h http.Header) string {
	for name, values := range h {
		if !isTokenString(name) {
			return "(malformed name)"
		}
		for _, v := range values {
			for i := range len(v) {
				if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
					return name
				}
			}
		}
	}
	return ""
}
