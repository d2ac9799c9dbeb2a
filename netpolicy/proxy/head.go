package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// head is the head of one HTTP/1 request, in the only way it can be read.
type head struct {
	method string
	// target is in origin form ("/path?query") or "*". absolute is the authority
	// of an absolute-form target, or empty.
	target   string
	absolute string
	scheme   string // of an absolute-form target
	minor    int    // of HTTP/1.minor
	host     string // the Host field as sent
	header   http.Header
	// length is the body's, or -1 when it is chunked.
	length  int64
	expect  bool // Expect: 100-continue
	close   bool // the client wants no further request
	upgrade bool // to anything but h2c, which is ignored
	// websocket tells that the upgrade is one to WebSocket and nothing else.
	websocket bool
	trailer   []string // names announced with Trailer
}

// headError is why a head was refused.
type headError struct {
	status int
	reason string
}

func (e *headError) Error() string { return "parse request: " + e.reason }

func badHead(format string, args ...any) error {
	return &headError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// smallHead is what a head may take without being counted.
const smallHead = 8 << 10

// readHead reads up to the empty line. buf is reused. Every line must end in
// CR LF; a bare LF or CR is where servers disagree on what a line is. hold is
// asked before a head takes that many bytes more than smallHead; nil allows it.
func readHead(r *bufio.Reader, buf []byte, limit int, hold func(n int64) bool) ([]byte, error) {
	buf = buf[:0]
	room := smallHead
	line := 0 // where the current line starts
	for {
		part, err := r.ReadSlice('\n')
		buf = append(buf, part...)
		if len(buf) > limit {
			return buf, &headError{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("head is longer than %d bytes", limit)}
		}
		for len(buf) > room {
			if hold != nil && !hold(2*int64(room)) { // once as read, once as text
				return buf, &headError{http.StatusServiceUnavailable, "too many large heads at a time"}
			}
			room *= 2
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			if err == io.EOF && len(buf) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return buf, err
		}
		end := len(buf)
		if end-line < 2 || buf[end-2] != '\r' {
			return buf, badHead("line does not end in CR LF")
		}
		if end-line == 2 {
			if line == 0 {
				return buf, badHead("empty line before the request")
			}
			return buf, nil
		}
		line = end
	}
}

// parseHead reads a head that readHead returned.
func parseHead(raw []byte, maxFields int) (*head, error) {
	text := string(raw)
	line, rest, _ := strings.Cut(text, "\r\n")
	h := &head{}
	if err := h.parseRequestLine(line); err != nil {
		return nil, err
	}
	f, err := parseFields(rest, maxFields)
	if err != nil {
		return nil, err
	}
	h.header = f
	if err := h.takeHost(); err != nil {
		return nil, err
	}
	if err := h.takeFraming(); err != nil {
		return nil, err
	}
	return h, h.takeConnection()
}

func (h *head) parseRequestLine(line string) error {
	method, rest, ok := strings.Cut(line, " ")
	if !ok || !isTokenString(method) || len(method) > longestMethod {
		return badHead("method is not a token")
	}
	target, version, ok := strings.Cut(rest, " ")
	if !ok {
		return badHead("request line has no version")
	}
	switch version {
	case "HTTP/1.1":
		h.minor = 1
	case "HTTP/1.0":
	case "HTTP/2.0":
		return &headError{http.StatusHTTPVersionNotSupported, "HTTP/2 without TLS is not supported"}
	default:
		return badHead("version is neither HTTP/1.1 nor HTTP/1.0")
	}
	h.method = method
	return h.parseTarget(target)
}

func (h *head) parseTarget(target string) error {
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return badHead("byte %q in the request target", c)
		}
	}
	switch {
	case target == "":
		return badHead("empty request target")
	case h.method == http.MethodConnect:
		return checkConnect(target)
	case target[0] == '/', target == "*" && h.method == http.MethodOptions:
		h.target = target
		return nil
	}
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || (scheme != "http" && scheme != "https") {
		return badHead("request target is neither a path nor an http URL")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	h.scheme, h.absolute, h.target = scheme, rest[:end], rest[end:]
	if h.absolute == "" {
		return badHead("request target has an empty host")
	}
	if !strings.HasPrefix(h.target, "/") {
		h.target = "/" + h.target
	}
	return nil
}

// checkConnect tells a malformed CONNECT from one that is merely not needed.
func checkConnect(target string) error {
	if _, _, err := netpolicy.ParseHostPort(target, 0); err != nil {
		return badHead("CONNECT target is not host:port")
	}
	return &headError{http.StatusMethodNotAllowed, "CONNECT is not supported: " + hintCaptured}
}

// parseFields reads header or trailer fields up to and with the empty line.
func parseFields(text string, maxFields int) (http.Header, error) {
	fields := make(http.Header, 16)
	for n := 0; ; n++ {
		line, rest, ok := strings.Cut(text, "\r\n")
		if !ok {
			return nil, badHead("field without an end")
		}
		if line == "" {
			if rest != "" {
				return nil, badHead("text after the empty line")
			}
			return fields, nil
		}
		if n == maxFields {
			return nil, &headError{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("more than %d header fields", maxFields)}
		}
		text = rest
		name, value, err := parseField(line)
		if err != nil {
			return nil, err
		}
		fields[name] = append(fields[name], value)
	}
}

func parseField(line string) (name, value string, err error) {
	if line[0] == ' ' || line[0] == '\t' {
		return "", "", badHead("folded header field")
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isTokenString(name) {
		return "", "", badHead("header field name is not a token")
	}
	value = strings.Trim(value, " \t")
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", "", badHead("byte %q in header field %q", c, name)
		}
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	switch seen := dashed(name); seen {
	case "Content-Length", "Transfer-Encoding":
		// Some servers turn all spellings into one variable.
		if name != seen {
			return "", "", badHead("header field %q", name)
		}
	}
	return name, value, nil
}

func (h *head) takeHost() error {
	hosts := h.header["Host"]
	if len(hosts) != 1 {
		return badHead("%d Host fields, want one", len(hosts))
	}
	h.host = hosts[0]
	delete(h.header, "Host")
	return nil
}

func (h *head) takeFraming() error {
	lengths, codings := h.header["Content-Length"], h.header["Transfer-Encoding"]
	delete(h.header, "Content-Length")
	delete(h.header, "Transfer-Encoding")
	switch {
	case len(lengths) > 0 && len(codings) > 0:
		return badHead("both Content-Length and Transfer-Encoding")
	case len(codings) > 0:
		if len(codings) > 1 || !strings.EqualFold(codings[0], "chunked") {
			return badHead("Transfer-Encoding is not exactly \"chunked\"")
		}
		if h.minor == 0 {
			return badHead("Transfer-Encoding in HTTP/1.0")
		}
		h.length = -1
	case len(lengths) > 1:
		return badHead("more than one Content-Length")
	case len(lengths) == 1:
		n, err := parseLength(lengths[0])
		if err != nil {
			return err
		}
		h.length = n
	}
	return nil
}

func parseLength(s string) (int64, error) {
	if s == "" || len(s) > 1 && s[0] == '0' {
		return 0, badHead("malformed Content-Length")
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, badHead("malformed Content-Length")
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > math.MaxInt64 {
		return 0, badHead("Content-Length is too large")
	}
	return int64(n), nil
}

// takeConnection reads the fields that are about this connection alone, and
// removes them and those that Connection names.
func (h *head) takeConnection() error {
	h.close = h.minor == 0
	h2c := offersOnly(h.header["Upgrade"], "h2c")
	websocket := offersOnly(h.header["Upgrade"], "websocket") && h.minor > 0
	h.upgrade = len(h.header["Upgrade"]) > 0 && !h2c
	for _, option := range tokens(h.header["Connection"]) {
		switch strings.ToLower(option) {
		case "close":
			h.close = true
		case "upgrade":
			h.upgrade, h.websocket = !h2c, websocket
		}
		if !isTokenString(option) {
			return badHead("malformed Connection")
		}
	}
	switch expect := h.header["Expect"]; {
	case len(expect) == 0:
	case len(expect) == 1 && strings.EqualFold(expect[0], "100-continue"):
		h.expect = h.minor > 0 && h.length != 0
	default:
		return &headError{http.StatusExpectationFailed, "Expect is not \"100-continue\""}
	}
	for _, name := range tokens(h.header["Trailer"]) {
		if name = textproto.CanonicalMIMEHeaderKey(name); mayTrail(name) {
			h.trailer = append(h.trailer, name)
		}
	}
	dropHopByHop(h.header)
	return nil
}

// offersOnly tells whether a client offers one protocol and nothing else. HTTP/2
// without TLS (h2c) is what Java and curl offer with every plain request. A server
// may ignore the offer (RFC 9110, section 7.8), so it is not forwarded and the
// answer is HTTP/1.1; a client that goes on in HTTP/2 all the same is refused.
func offersOnly(upgrade []string, protocol string) bool {
	return len(upgrade) == 1 && strings.EqualFold(upgrade[0], protocol)
}

// tokens splits comma-separated lists.
func tokens(values []string) []string {
	var all []string
	for _, v := range values {
		for _, t := range strings.Split(v, ",") {
			if t = strings.Trim(t, " \t"); t != "" {
				all = append(all, t)
			}
		}
	}
	return all
}

func isTokenString(s string) bool {
	for i := range len(s) {
		if !isToken(s[i]) {
			return false
		}
	}
	return s != ""
}

// isToken tells whether c may stand in a token (RFC 9110, section 5.6.2).
func isToken(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0
}
