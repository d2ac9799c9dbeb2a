package proxy

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
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
	"X-Forwarded-Server", "X-Forwarded-Scheme", "X-Forwarded-Ssl", "X-Forwarded-By", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip",
	"X-Cluster-Client-Ip", "X-Originating-Ip", "X-Remote-Ip", "X-Remote-Addr", "Cf-Connecting-Ip", "Fastly-Client-Ip",
}

// rewrites are the fields in which some servers look for another path or host
// than the request's (IIS, Zend, Symfony, Envoy). What was judged is the
// request's, so they are not forwarded.
var rewrites = []string{
	"X-Original-Url", "X-Original-Uri", "X-Original-Path", "X-Original-Host", "X-Rewrite-Url", "X-Rewrite-Uri", "X-Host",
	"X-Http-Host-Override", "X-Http-Destinationurl",
	"X-Forwarded-Uri", "X-Forwarded-Path", "X-Forwarded-Prefix", "X-Envoy-Original-Path", "X-Envoy-Original-Host",
}

// methodOverrides are the fields in which some servers look for the real method.
var methodOverrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// methodParameter is the parameter of the query in which Symfony, Laravel and the
// like look for it.
const methodParameter = "_method"

// dashed gives the name that a server sees which turns fields into variables.
func dashed(name string) string {
	if d := netpolicy.Dashed(name); d != name {
		return textproto.CanonicalMIMEHeaderKey(d)
	}
	return name
}

// isAmong tells whether a field's name, in any spelling, is in a list.
func isAmong(name string, lists ...[]string) bool {
	name = dashed(name)
	for _, list := range lists {
		if slices.Contains(list, name) {
			return true
		}
	}
	return false
}

// dropMisleading removes what tells the server of another client, path or host,
// and what looks like framing to one that cannot tell "_" from "-", see dashed.
func dropMisleading(h http.Header) {
	for name := range h {
		if isAmong(name, aboutClient, rewrites) || name != dashed(name) && isAmong(name, hopByHop, []string{"Content-Length"}) {
			delete(h, name)
		}
	}
}

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
	switch dashed(textproto.CanonicalMIMEHeaderKey(name)) {
	case "Host", "Content-Length", "Content-Encoding", "Content-Type", "Content-Range", "Authorization", "Cookie",
		"Set-Cookie", "Cache-Control", "Max-Forwards", "Range", "If-Match", "If-None-Match", "Date", "Location":
		return false
	}
	return isTokenString(name) && !isAmong(name, hopByHop, aboutClient, rewrites, methodOverrides)
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
