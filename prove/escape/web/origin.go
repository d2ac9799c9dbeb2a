package web

import (
	"bytes"
	"crypto/tls"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// World is what the origins of a run have in common. Its fields are set before
// the first connection.
type World struct {
	// Note is told every finding, from any goroutine. Nil: nobody is.
	Note func(Seen)
	// Right holds the secret that may arrive at an origin, by its name.
	Right map[string]string
	// Secrets are the real secrets and the placeholders of the run.
	Secrets []string
	// Find gives what else must not be in the bytes of a connection. Nil: nothing.
	Find func(raw []byte) []string
	// CA signs for the origins.
	CA *Authority
	// Twin tells that nothing is confined: the probe may ask tally.test what
	// came of it.
	Twin bool

	mu   sync.Mutex
	tags map[string]bool // of findings
	log  []string        // requests, for tests
}

// Seen is a finding: something arrived that must not.
type Seen struct {
	Origin, What string
	// Tags are the numbers that the probe gave to what it sent (T0001).
	Tags []string
}

// Origin is a name that the world serves, and where.
type Origin struct {
	Name  string
	Ports []Port
}

// Port is one port of an origin.
type Port struct {
	Number int
	TLS    bool
}

// script answers one connection, after TLS was ended where there is TLS.
type script func(w *World, v *visit)

// Origins lists every name that the world serves.
func Origins() []Origin {
	web := []Port{{80, false}, {443, true}}
	var all []Origin
	for _, name := range plainOrigins {
		all = append(all, Origin{name, web})
	}
	for name := range badOrigins {
		all = append(all, Origin{name, web})
	}
	slices.SortFunc(all, func(a, b Origin) int { return strings.Compare(a.Name, b.Name) })
	return append(all, Origin{Tally, web[:1]})
}

// Tally is the name that answers the probe of a twin with the numbers of what succeeded, so
// that each variant has a control of its own. It is in no policy.
const Tally = "tally.test"

// plainOrigins answer what they are asked and read it as laxly as can be.
var plainOrigins = []string{
	"allowed.test", "other.test", "api.test", "llm.test", "denied.test", "evil.test",
	"mcp.test", "rpc.test", "gql.test", "git.test", "ws.test", "via.test", "api2.test", "deny.test", "pass.test",
	"good-llm.test", "a-llm.test", "g-llm.test", "mtls.test", "x.wild.test", "deep.x.wild.test", "wild.test",
	"evilwild.test", "wild.test.evil.test",
}

// canaries are the origins at which every connection is a finding.
func isCanary(name string) bool {
	return name == "denied.test" || name == "evil.test" || strings.HasSuffix(name, ".evil.test") ||
		name == "wild.test" || name == "evilwild.test" || name == "deep.x.wild.test"
}

// maxRead bounds how much of a connection is kept and read.
const maxRead = 256 << 10

// idleTime is when a request that does not go on is taken for all there is.
const idleTime = 150 * time.Millisecond

// visit is one connection.
type visit struct {
	net.Conn
	w    *World
	name string
	port int

	mu   sync.Mutex
	raw  []byte
	said map[string]bool
	// faults are findings about the connection, which are reported again once
	// there is a number.
	faults []string
}

// fault is a finding about the connection as a whole.
func (v *visit) fault(what string) {
	v.faults = append(v.faults, what)
	v.note(what)
}

// Serve answers one connection to an origin, and ends TLS where the port has it.
// An origin without a name is asked under any.
func (w *World) Serve(name string, port int, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	v := &visit{Conn: conn, w: w, name: name, port: port, said: map[string]bool{}}
	if isCanary(name) || name == Tally && !w.Twin {
		v.fault("a connection to " + name)
	}
	if name == Tally && w.Twin {
		w.tally(conn)
		return
	}
	if port == 443 {
		if !v.startTLS() {
			return
		}
	}
	defer v.analyse()
	if s := badOrigins[name]; s != nil {
		s(w, v)
		return
	}
	v.answerAll()
}

// startTLS ends TLS on the connection, or notes that something else came.
func (v *visit) startTLS() bool {
	p := &peeked{Conn: v.Conn}
	first, err := p.peek()
	if err != nil {
		return false
	}
	if first != 0x16 {
		v.Conn = p
		v.fault("bytes that are not TLS")
		for err == nil { // for the number
			_ = v.SetReadDeadline(time.Now().Add(2 * idleTime))
			_, err = v.read()
		}
		v.analyse()
		return false
	}
	if sni, _ := clientHello(p.held); v.name != "" && sni != v.name {
		v.fault("the server name " + strconv.Quote(sni))
		v.number(p.held)
	}
	t := tls.Server(p, v.w.tlsConfig(v.name))
	if err := t.Handshake(); err != nil {
		return false
	}
	state := t.ConnectionState()
	v.Conn = t
	if state.Version < tls.VersionTLS12 {
		v.fault("an old version of TLS")
	}
	switch v.name {
	case "bad-mtls.test":
		if len(state.PeerCertificates) > 0 {
			v.fault("a client certificate that is for another host")
		}
	case "bad-expired.test", "bad-self.test", "bad-name.test", "bad-root.test":
		v.fault("a connection to a server whose certificate is not valid")
	}
	return true
}

// number reports the faults again with the numbers that stand in b.
func (v *visit) number(b []byte) {
	v.mu.Lock()
	kept := v.raw
	v.raw = b
	v.mu.Unlock()
	for _, what := range v.faults {
		v.note(what)
	}
	v.mu.Lock()
	v.raw = kept
	v.mu.Unlock()
}

// Read keeps what it reads.
func (v *visit) read() ([]byte, error) {
	buf := make([]byte, 32<<10)
	n, err := v.Conn.Read(buf)
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.raw) < maxRead {
		v.raw = append(v.raw, buf[:n]...)
	}
	return buf[:n], err
}

var tagLike = regexp.MustCompile(`T[0-9]{4}`)

// note reports a finding once for each set of numbers.
func (v *visit) note(what string) {
	v.mu.Lock()
	var tags []string
	for _, t := range tagLike.FindAll(v.raw, -1) {
		if !slices.Contains(tags, string(t)) {
			tags = append(tags, string(t))
		}
	}
	key := what + " " + strings.Join(tags, " ")
	seen := v.said[key]
	v.said[key] = true
	v.mu.Unlock()
	if !seen {
		v.w.note(Seen{v.name, what, tags})
	}
}

func (w *World) note(s Seen) {
	w.mu.Lock()
	if w.tags == nil {
		w.tags = map[string]bool{}
	}
	for _, t := range s.Tags {
		w.tags[t] = true
	}
	w.mu.Unlock()
	if w.Note != nil {
		w.Note(s)
	}
}

// analyse reads all that came so far as a lax server would.
func (v *visit) analyse() {
	v.mu.Lock()
	raw := bytes.Clone(v.raw)
	v.mu.Unlock()
	if len(raw) == 0 {
		return
	}
	for _, what := range v.faults {
		v.note(what)
	}
	all := texts(raw)
	for _, what := range laxly(v.name, raw, all) {
		v.note(what)
	}
	for _, secret := range v.w.Secrets {
		if secret != v.w.Right[v.name] && holds(all, secret) {
			v.note("a secret or a placeholder")
		}
	}
	if v.w.Find != nil {
		for _, what := range v.w.Find(raw) {
			v.note(what)
		}
	}
	if secret := v.w.Right[v.name]; secret != "" && v.port != 443 && holds(all, secret) {
		v.note("a secret without TLS")
	}
}

// tally tells the probe of a twin which of its numbers are among the findings.
func (w *World) tally(c net.Conn) {
	_, _ = c.Read(make([]byte, 4096))
	w.mu.Lock()
	var tags []string
	for t := range w.tags {
		tags = append(tags, t)
	}
	w.mu.Unlock()
	slices.Sort(tags)
	_, _ = c.Write(plainAnswer("200 OK", "text/plain", strings.Join(tags, "\n")))
}

// answerAll answers every request that the usual reading finds, until the
// client goes or says nothing that could be one.
func (v *visit) answerAll() {
	answered := 0
	for {
		_ = v.SetReadDeadline(time.Now().Add(v.patience(answered)))
		got, err := v.read()
		if len(got) > 0 {
			complete, rest := usual(v.kept(), answered)
			for _, r := range complete {
				answered = r.end
				v.analyse()
				if !v.answer(r) {
					return
				}
			}
			if len(rest) == 0 {
				continue
			}
		}
		if err == nil {
			continue
		}
		v.analyse()
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() && len(v.kept()) > answered {
			_, _ = v.Write(plainAnswer("400 Bad Request", "text/plain", "not a whole request"))
			_ = v.SetReadDeadline(time.Now().Add(5 * time.Second))
			for {
				// What comes after all may still be a request for somebody.
				if _, err := v.read(); err != nil {
					break
				}
				v.analyse()
			}
		}
		return
	}
}

// patience is short while something stands there that is not whole yet.
func (v *visit) patience(answered int) time.Duration {
	if n := len(v.kept()); n > answered && n < maxRead {
		return idleTime
	}
	return 30 * time.Second
}

func (v *visit) kept() []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.raw
}

// usualRequest is a request in the reading by which it is answered.
type usualRequest struct {
	head requestHead
	raw  []byte // of the head
	body []byte
	end  int
}

// usual gives the whole requests from raw[at:] on, where Transfer-Encoding goes
// before Content-Length.
func usual(raw []byte, at int) (all []usualRequest, rest []byte) {
	for at < len(raw) {
		end := headEnds(raw[at:])[0]
		if end == len(raw)-at && !bytes.HasSuffix(raw, []byte("\n")) {
			break
		}
		h := laxHead(raw[at : at+end])
		if !bytes.Contains(raw[at:at+end], []byte("\n\n")) && !bytes.Contains(raw[at:at+end], []byte("\n\r\n")) || len(h.words) < 2 {
			break
		}
		size, whole := bodySize(h, raw[at+end:])
		if !whole {
			break
		}
		stop := at + end + size
		all = append(all, usualRequest{h, raw[at : at+end], raw[at+end : stop], stop})
		at = stop
	}
	return all, raw[at:]
}

func bodySize(h requestHead, rest []byte) (size int, whole bool) {
	if codings := h.values("transfer-encoding"); len(codings) > 0 {
		n := chunkEnd(rest, "\n", 64)
		return n, bytes.HasSuffix(rest[:n], []byte("\n")) && bytes.Contains(rest[:n], []byte("0"))
	}
	lengths := h.values("content-length")
	if len(lengths) == 0 {
		return 0, true
	}
	n, err := strconv.Atoi(lengths[0])
	if err != nil || n < 0 || n > len(rest) {
		return 0, false
	}
	return n, true
}
