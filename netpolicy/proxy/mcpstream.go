package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// eventStream is a stream of server-sent events as the client may see it. Every
// event is judged and written anew; comments are passed on as they come.
type eventStream struct {
	a        *mcpAnswer
	src      io.ReadCloser
	splitter eventSplitter
	buf      []byte
	out      bytes.Buffer
	held     int64 // of what the splitter keeps
	err      error // what comes after out
}

func (a *mcpAnswer) stream(resp *http.Response) {
	s := &eventStream{a: a, src: resp.Body, buf: make([]byte, 16<<10)}
	s.splitter = eventSplitter{most: a.claim.MaxResponse(), comment: s.comment, event: s.event}
	resp.Body, resp.ContentLength, resp.Trailer = s, -1, nil
	for _, name := range aboutBytes {
		delete(resp.Header, name)
	}
	delete(resp.Header, "Content-Length")
}

// Read gives what was judged so far, and waits for more only when that is
// nothing.
func (s *eventStream) Read(p []byte) (int, error) {
	for s.out.Len() == 0 {
		if s.err != nil {
			return 0, s.err
		}
		n, err := s.src.Read(s.buf)
		if failed := s.take(s.buf[:n]); failed != nil {
			s.fail(failed)
		} else if err != nil {
			s.err = err
		}
	}
	return s.out.Read(p)
}

// Close ends the stream.
func (s *eventStream) Close() error {
	s.a.fl.drop(s.held)
	s.held = 0
	return s.src.Close()
}

func (s *eventStream) take(b []byte) error {
	err := s.splitter.feed(b)
	more := s.splitter.kept() - s.held
	if more > 0 && !s.a.fl.hold(more) {
		return errHeld
	}
	if more < 0 {
		s.a.fl.drop(-more)
	}
	s.held += more
	return err
}

// errQuestion ends a stream whose server waits for an answer that it will not
// get: the client would wait with it.
var errQuestion = errors.New("MCP: the server asks what no rule allows")

// fail ends the stream so that the client sees that it is not whole. Where one
// request waits for an answer that is too large, or that the server makes depend
// on a question, it gets an error instead.
func (s *eventStream) fail(err error) {
	fl := s.a.fl
	var answer []byte
	switch one := len(s.a.waiting) == 1; {
	case one && errors.Is(err, errMessageSize):
		answer = s.a.tooLarge()
	case one && errors.Is(err, errQuestion):
		answer = s.a.failure(s.a.denied)
	}
	if answer != nil {
		s.write(serverEvent{data: answer})
		s.err = io.EOF
		return
	}
	s.err = err
	refused := s.a.broken("the server's stream: " + err.Error())
	e := refused.event(audit.KindUpstream, fl.f)
	e.Method, e.Path = fl.out.Method, audit.Redact(fl.out.URL.RequestURI())
	fl.s.record(e)
}

func (s *eventStream) comment(text []byte) {
	s.out.WriteByte(':')
	s.out.Write(text)
	s.out.WriteByte('\n')
}

// event judges one event. An event without data only moves the place from which
// a client would go on.
func (s *eventStream) event(e serverEvent) error {
	switch {
	case len(e.data) == 0:
	case e.name == "endpoint":
		path, err := s.a.endpoint(string(e.data))
		if err != nil {
			return err
		}
		e.data = []byte(path)
	default:
		s.a.denied = nil
		shown, err := s.a.text(e.data)
		if err != nil {
			return err
		}
		if s.a.denied != nil && len(s.a.waiting) == 1 {
			return errQuestion
		}
		if e.data = shown; shown == nil {
			e.name = ""
		}
	}
	s.write(e)
	return nil
}

func (s *eventStream) write(e serverEvent) {
	if len(e.data) == 0 && !e.hasID && e.retry == "" {
		return
	}
	if e.name != "" {
		s.out.WriteString("event: " + e.name + "\n")
	}
	if e.hasID {
		s.out.WriteString("id: " + e.id + "\n")
	}
	if e.retry != "" {
		s.out.WriteString("retry: " + e.retry + "\n")
	}
	s.out.WriteString("data: ")
	s.out.Write(e.data)
	s.out.WriteString("\n\n")
}

// endpoint judges where the older transport sends its messages: it must be the
// same server, and a place where the rule's protocol is spoken.
func (a *mcpAnswer) endpoint(text string) (string, error) {
	fl := a.fl
	if fl.out.Method != http.MethodGet {
		return "", errors.New("MCP: an endpoint in the answer to a call")
	}
	base, err := url.Parse(fl.out.URL.Scheme + "://" + fl.out.Host + fl.judged.Path)
	if err != nil {
		return "", errors.New("MCP: the endpoint cannot be judged")
	}
	to, err := base.Parse(text)
	if err != nil || to.Scheme != base.Scheme || to.User != nil || to.Fragment != "" || to.Opaque != "" {
		return "", errors.New("MCP: the endpoint is not an address of this server")
	}
	host, port, err := netpolicy.ParseHostPort(to.Host, fl.f.port)
	if err != nil || host != fl.f.host || port != fl.f.port {
		return "", errors.New("MCP: the endpoint is at another server")
	}
	target := to.EscapedPath()
	if to.RawQuery != "" {
		target += "?" + to.RawQuery
	}
	path, query, err := netpolicy.SplitTarget(target)
	if err != nil {
		return "", errors.New("MCP: the endpoint is malformed")
	}
	values, err := netpolicy.ParseQuery(query)
	if err != nil {
		return "", errors.New("MCP: the endpoint is malformed")
	}
	d := fl.rules.Engine.Request(netpolicy.Request{
		Host: host, Port: port, TLS: fl.f.tls, Method: http.MethodPost, Path: path, Query: values,
		Header: map[string][]string{"Content-Type": {rpcTypes[0]}}, Length: -1,
	})
	if d.Verdict != netpolicy.Allow || d.Claim == nil || d.Claim.Protocol != policy.ProtocolMCP {
		a.record(netpolicy.Decision{Reason: "the server wants messages at a path where no rule lets MCP be spoken"}, "endpoint")
		return "", errors.New("MCP: the endpoint is where no rule lets MCP be spoken")
	}
	if query != "" {
		path += "?" + query
	}
	return path, nil
}
