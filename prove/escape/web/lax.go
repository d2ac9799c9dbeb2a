// Package web is the HTTP half of the world of the escape suite: origins that
// read what they are sent as laxly as any server ever did, and a gateway with
// the usual mistakes, through which each attack must come.
package web

import (
	"bytes"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Word is what no origin may ever be sent: the names of tools, models, fields,
// refs and values that the policies of the table do not allow.
const Word = "forbidden"

// Lax gives what a lax server could take the bytes of one connection for,
// where that is something the world's policy does not allow. origin is the
// server's own name; without one, names are not compared.
//
// Lax is the opposite of a parser that one would use: it follows every way in
// which some server has ever read such bytes, all at once.
func Lax(origin string, raw []byte) []string { return laxly(origin, raw, texts(raw)) }

func laxly(origin string, raw []byte, all []text) []string {
	l := lax{origin: origin, seen: map[int]bool{}}
	l.from(raw, 0)
	if len(l.requests) == 0 {
		l.note("bytes that are no request")
	}
	if spelled(all, Word) {
		l.note("the word %q", Word)
	}
	return l.found
}

// Requests gives every request that some reading finds, as "METHOD TARGET".
func Requests(raw []byte) []string {
	l := lax{seen: map[int]bool{}}
	l.from(raw, 0)
	return l.requests
}

// maxReadings bounds the work: the bytes are those of an attacker.
const maxReadings = 400

type lax struct {
	origin   string
	seen     map[int]bool // where a request was begun to be read
	found    []string
	requests []string
}

func (l *lax) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(l.found, text) {
		l.found = append(l.found, text)
	}
}

// from reads what could be a request at raw[at:], and what could follow it.
func (l *lax) from(raw []byte, at int) {
	for at < len(raw) && (raw[at] == '\r' || raw[at] == '\n' || raw[at] == ' ') {
		at++
	}
	if at >= len(raw) || l.seen[at] || len(l.seen) > maxReadings {
		return
	}
	l.seen[at] = true
	for _, end := range headEnds(raw[at:]) {
		h := laxHead(raw[at : at+end])
		if !h.plausible() {
			continue
		}
		l.judge(h)
		if at == 0 {
			l.shape(h, end)
		}
		for _, after := range h.bodyEnds(raw[at+end:]) {
			l.from(raw, at+end+after)
		}
	}
}

// shape looks at what no gateway should pass on whatever it says.
func (l *lax) shape(h requestHead, size int) {
	if len(h.fields) > 1000 || size > 128<<10 {
		l.note("a head of %d fields and %d KiB", len(h.fields), size>>10)
	}
	if l.origin != "" && len(h.values("host")) == 0 {
		l.note("a request without a host")
	}
	upgrade := strings.ToLower(strings.Join(h.values("upgrade"), ","))
	if upgrade != "" && (upgrade != "websocket" || !strings.HasSuffix(l.origin, "ws.test")) {
		l.note("an upgrade to %q", upgrade)
	}
	if l.origin == "api2.test" && len(h.values("authorization")) == 0 {
		for _, p := range laxPaths(h.targets()[0]) {
			if strings.HasPrefix(p, "/one") {
				l.note("a request without its credential")
			}
		}
	}
}

// headEnds gives where a head could end: at an empty line of any spelling.
func headEnds(raw []byte) []int {
	var ends []int
	for _, empty := range []string{"\r\n\r\n", "\n\n", "\n\r\n", "\r\r"} {
		if i := bytes.Index(raw, []byte(empty)); i >= 0 {
			ends = append(ends, i+len(empty))
		}
	}
	slices.Sort(ends)
	if len(ends) == 0 {
		return []int{len(raw)} // cut, or HTTP/0.9
	}
	return slices.Compact(ends)
}

// field is a header field as the laxest server knows it.
type field struct{ name, value string }

type requestHead struct {
	words  []string // of the request line
	fields []field
}

// laxHead reads lines that end in anything. A folded line is a part of the one
// before, and a field of its own.
func laxHead(raw []byte) requestHead {
	lines := strings.FieldsFunc(string(raw), func(r rune) bool { return r == '\n' || r == '\r' })
	var h requestHead
	if len(lines) == 0 {
		return h
	}
	h.words = strings.Fields(lines[0])
	for _, line := range lines[1:] {
		if folded := line[0] == ' ' || line[0] == '\t'; folded && len(h.fields) > 0 {
			h.fields[len(h.fields)-1].value += " " + strings.TrimSpace(line)
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		h.fields = append(h.fields, field{laxName(name), strings.Trim(value, " \t\v\f\x00")})
	}
	return h
}

// laxName is a name as the laxest CGI gives it: what is no letter and no digit is
// "-", or nothing where it may not stand in a name.
func laxName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r | 0x20
		case strings.ContainsRune("_. !#$%&'*+^`|~", r):
			return '-'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-':
			return r
		}
		return -1
	}, strings.Trim(name, " \t\v\f\x00"))
}

var methodLike = regexp.MustCompile(`^[!-~]{1,40}$`)

func (h requestHead) plausible() bool {
	return len(h.words) >= 2 && methodLike.MatchString(h.words[0]) && slices.ContainsFunc(h.targets(), func(t string) bool {
		return strings.ContainsAny(t, "/*%\\") || strings.Contains(t, ":")
	})
}

// targets gives every word that could be the target: a method with spaces
// moves it.
func (h requestHead) targets() []string {
	var targets []string
	for _, w := range h.words[1:] {
		if !strings.HasPrefix(strings.ToUpper(w), "HTTP/") {
			targets = append(targets, w)
		}
	}
	return targets
}

func (h requestHead) values(names ...string) []string {
	var values []string
	for _, f := range h.fields {
		if slices.Contains(names, f.name) {
			values = append(values, f.value)
		}
	}
	return values
}

var (
	lengthDigits = regexp.MustCompile(`^[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)`)
	plainLength  = regexp.MustCompile(`^[0-9]{1,15}$`)
)

// bodyEnds gives where the body could end, relative to its start. What has one
// reading for everybody gives one.
func (h requestHead) bodyEnds(rest []byte) []int {
	lengths, codings := h.values("content-length"), h.values("transfer-encoding")
	switch {
	case len(lengths) == 0 && len(codings) == 0:
		return []int{0}
	case len(codings) == 0 && len(lengths) == 1 && plainLength.MatchString(lengths[0]):
		n, _ := strconv.Atoi(lengths[0])
		return []int{min(n, len(rest))}
	case len(lengths) == 0 && len(codings) == 1 && codings[0] == "chunked":
		return chunkEnds(rest)
	}
	ends := []int{0}
	for _, length := range lengths {
		for _, part := range append(strings.Split(length, ","), length) {
			if n, err := strconv.ParseInt(strings.TrimPrefix(lengthDigits.FindString(strings.TrimSpace(part)), "+"), 0, 64); err == nil && n >= 0 {
				ends = append(ends, int(min(n, int64(len(rest)))))
			}
		}
	}
	if len(codings) > 0 {
		ends = append(ends, chunkEnds(rest)...)
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

// chunkEnds gives where a chunked body could end for a server that takes a line
// feed for the end of a line, and for one that does not; and for one that takes
// a size that is too large for none, or for what is left of it in 32 bits.
func chunkEnds(rest []byte) []int {
	var ends []int
	for _, lineEnd := range []string{"\n", "\r\n"} {
		for _, bits := range []int{64, 32} {
			ends = append(ends, chunkEnd(rest, lineEnd, bits))
		}
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

func chunkEnd(rest []byte, lineEnd string, bits int) int {
	at := 0
	for at < len(rest) {
		i := bytes.Index(rest[at:], []byte(lineEnd))
		if i < 0 {
			return len(rest)
		}
		n := chunkSize(string(rest[at:at+i]), bits)
		at += i + len(lineEnd)
		if n == 0 {
			return trailerEnd(rest, at)
		}
		if n > uint64(len(rest)-at) {
			return len(rest)
		}
		at += int(n)
		for at < len(rest) && (rest[at] == '\r' || rest[at] == '\n') {
			at++
		}
	}
	return at
}

func chunkSize(line string, bits int) uint64 {
	var n uint64
	line = strings.TrimPrefix(strings.TrimLeft(line, " \t+"), "0x")
	for _, c := range []byte(strings.ToLower(line)) {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return n & (1<<bits - 1)
		}
	}
	return n & (1<<bits - 1)
}

// trailerEnd is after the empty line that ends the trailers.
func trailerEnd(rest []byte, at int) int {
	for at < len(rest) {
		i := bytes.IndexByte(rest[at:], '\n')
		if i < 0 {
			return len(rest)
		}
		line := bytes.TrimRight(rest[at:at+i], "\r")
		at += i + 1
		if len(line) == 0 {
			return at
		}
	}
	return at
}

// judge looks at everything that names a host, a path or a method.
func (l *lax) judge(h requestHead) {
	if h.words[0] == "PRI" {
		l.note("the preface of HTTP/2")
	}
	l.requests = append(l.requests, strings.Join(h.words[:min(2, len(h.words))], " "))
	for _, target := range append(h.targets(), h.values(pathFields...)...) {
		l.target(target)
	}
	for _, v := range h.values(hostFields...) {
		for _, one := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
			l.host(one)
		}
	}
	for _, v := range h.values("forwarded") {
		if _, host, ok := strings.Cut(strings.ToLower(v), "host="); ok {
			l.host(strings.Trim(host, `"`))
		}
	}
	if strings.HasSuffix(l.origin, "via.test") {
		for _, name := range []string{"via", "forwarded", "x-forwarded-for", "x-real-ip", "proxy-authorization", "proxy-connection"} {
			if len(h.values(name)) > 0 {
				l.note("the field %q", name)
			}
		}
	}
	if l.origin != "allowed.test" {
		return
	}
	methods := append(h.values("x-http-method-override", "x-http-method", "x-method-override"), h.words[0])
	for _, target := range h.targets() {
		methods = append(methods, queryMethods(target)...)
	}
	for _, m := range methods {
		switch m = strings.ToUpper(strings.TrimSpace(m)); m {
		case "DELETE", "PUT", "PATCH", "TRACE", "TRACK", "CONNECT":
			l.note("the method %s", m)
		}
	}
}

var (
	hostFields = []string{"host", "x-forwarded-host", "x-host", "x-original-host", "x-forwarded-server", "x-http-host-override", "x-envoy-original-host"}
	pathFields = []string{"x-original-url", "x-original-uri", "x-rewrite-url", "x-rewrite-uri", "x-original-path", "x-forwarded-uri", "x-forwarded-path", "x-envoy-original-path"}
)

// queryMethods gives the methods that a query asks for. PHP takes a space, a
// dot or a bracket in a name for "_", and drops spaces before it.
func queryMethods(target string) []string {
	_, query, _ := strings.Cut(target, "?")
	var methods []string
	for _, pair := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		n, _ := url.QueryUnescape(name)
		n = strings.TrimLeft(n, " ")
		n, _, _ = strings.Cut(n, "\x00")
		n = strings.NewReplacer(" ", "_", ".", "_").Replace(n)
		if strings.HasPrefix(n, "[") {
			n = "_" + n[1:]
		}
		n, _, _ = strings.Cut(n, "[")
		switch strings.ToLower(n) {
		case "_method", "_httpmethod", "x-http-method-override", "x_http_method_override":
			v, _ := url.QueryUnescape(value)
			methods = append(methods, v)
		}
	}
	return methods
}

// target judges a request target in any form.
func (l *lax) target(target string) {
	if scheme, rest, ok := strings.Cut(target, "://"); ok && len(scheme) < 8 && !strings.Contains(scheme, "/") {
		end := strings.IndexAny(rest, "/?#\\")
		if end < 0 {
			end = len(rest)
		}
		l.host(rest[:end])
		target = rest[end:]
	} else if strings.HasPrefix(target, "//") {
		authority, _, _ := strings.Cut(target[2:], "/")
		if strings.Contains(authority, ".test") {
			l.host(authority)
		}
	}
	if guarded(l.origin) {
		for _, p := range laxPaths(target) {
			if strings.HasPrefix(p, "/secret") || strings.HasPrefix(p, "/admin") {
				l.note("the path %s", p)
			}
		}
	}
}

// guarded tells where /admin and /secret are nobody's business.
func guarded(origin string) bool {
	return origin == "allowed.test" || origin == "deny.test" || strings.HasSuffix(origin, "llm.test")
}

// host judges an authority, read from both ends.
func (l *lax) host(authority string) {
	if l.origin == "" {
		return
	}
	for _, name := range laxHosts(authority) {
		if name != "" && name != l.origin {
			l.note("the host %s", name)
		}
	}
}

// laxHosts gives the names for which an authority could be taken.
func laxHosts(authority string) []string {
	var names []string
	for _, a := range []string{authority, percent(authority), percent(percent(authority))} {
		forms := []string{a}
		if i := strings.IndexByte(a, '@'); i >= 0 {
			forms = []string{a[:i], a[i+1:], a[strings.LastIndexByte(a, '@')+1:]}
		}
		for _, f := range forms {
			if i := strings.IndexAny(f, "\\/#?\x00"); i >= 0 {
				names = append(names, bareHost(f[:i]), bareHost(f[i+1:]))
				continue
			}
			names = append(names, bareHost(f))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func bareHost(s string) string {
	s = strings.Trim(s, " \t\"")
	if i := strings.IndexByte(s, ':'); i >= 0 && !strings.HasPrefix(s, "[") {
		s = s[:i]
	}
	s = strings.TrimLeft(s, "[")
	s, _, _ = strings.Cut(s, "]")
	return strings.ToLower(strings.Trim(s, "."))
}

// laxPaths gives what a path could be: decoded up to three times, cut where C
// ends a string, with backslashes as slashes, without parameters, resolved,
// in small letters, without what Windows drops at the end of a name.
func laxPaths(target string) []string {
	p, _, _ := strings.Cut(target, "?")
	var all []string
	for range 4 {
		for _, form := range []string{p, beforeAny(p, "?#\x00"), beforeAny(p, "\x00")} {
			all = append(all, resolve(form, true), resolve(form, false))
		}
		p = percent(p)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func beforeAny(s, chars string) string {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return s[:i]
	}
	return s
}

// resolve gives a path without dots, with parameters or without.
func resolve(p string, keepParameters bool) string {
	p = strings.ToLower(strings.ReplaceAll(p, `\`, "/"))
	var stack []string
	for _, seg := range strings.Split(p, "/") {
		if !keepParameters {
			seg = beforeAny(seg, ";")
		}
		bare := strings.TrimRight(seg, " \t\v\x00\r\n")
		switch {
		case bare == "" || bare == ".":
		case bare == "..":
			stack = stack[:max(0, len(stack)-1)]
		default:
			stack = append(stack, strings.TrimRight(bare, ". "))
		}
	}
	return "/" + strings.Join(stack, "/")
}

var (
	escapes  = regexp.MustCompile(`(?i)%u00([0-9a-f]{2})|%([0-9a-f]{2})`)
	overlong = strings.NewReplacer("\xc0\xae", ".", "\xc0\xaf", "/", "\xc1\x9c", `\`, "\xe0\x80\xae", ".", "\xe0\x80\xaf", "/",
		"／", "/", "．", ".", "＼", `\`)
)

// percent decodes once what can be decoded, overlong forms included.
func percent(s string) string {
	s = escapes.ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[len(e)-2:], 16, 8)
		return string([]byte{byte(n)})
	})
	return overlong.Replace(s)
}
