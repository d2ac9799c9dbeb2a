package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/docker"
)

// The bounds of what is read as a whole on the way to a container engine.
const (
	maxEngineBody   = 1 << 20 // of a request
	maxEngineAnswer = 8 << 20 // that is judged or cut down
	engineBodyWait  = 30 * time.Second
	engineAskWait   = 30 * time.Second
)

// engineWay is one connection from inside to the container engine's API.
type engineWay struct {
	set *docker.Set
	// inner carries requests, each on a connection of its own: none can be
	// mistaken for a part of another.
	inner *http.Transport
}

// engineMaking is held while a container is made: how many there are is asked
// for first.
type engineMaking struct{ mu sync.Mutex }

// ServeDocker carries one connection from inside to the container engine, and
// returns when it is over. dial connects to the engine; it is called once for
// each request to it, after the request's form was judged.
func (s *Server) ServeDocker(ctx context.Context, conn net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer func() { _ = conn.Close() }()
	if s.Docker == nil {
		return
	}
	s.wg.Add(1)
	defer s.wg.Done()
	stop, err := s.track(ctx, conn)
	if err != nil {
		return
	}
	defer stop()
	defer s.recovered("connection to the container engine")
	s.open.Add(1)
	defer s.leave()
	c := &capture{Conn: conn, closed: make(chan struct{})}
	defer func() { _ = c.Close() }()
	f := &front{engine: &engineWay{set: s.Docker, inner: s.newInner(&inbound{dial: dial})}}
	c.front = f
	s.serveHTTP1(ctx, c, c, f)
}

// judgeDocker does for a request to a container engine what judge does for one to
// a server.
func (s *Server) judgeDocker(ctx context.Context, f *front, r *request) (*flow, *refusal) {
	fl := &flow{s: s, f: f, rules: s.rules(), due: r.due}
	fl.rules.out.enter()
	call, err := fl.engineCall(ctx, r)
	var refused *refusal
	if err != nil {
		refused = engineRefusal(err)
	} else {
		fl.engineOut(ctx, r, call)
		e := refusalEvent(f, audit.Event{Kind: audit.KindRequest, Verdict: audit.Allow, Method: r.method, Path: audit.Redact(fl.out.URL.RequestURI())})
		if !s.record(e) {
			fl.close()
			return nil, unrecorded(f.host)
		}
		return fl, nil
	}
	fl.close()
	if !s.record(fl.denial(refused, r)) {
		return nil, unrecorded(f.host)
	}
	return nil, refused
}

// refusalEvent says that an event is about the container engine.
func refusalEvent(f *front, e audit.Event) audit.Event {
	e.Host, e.Rule, e.Pos, e.Protocol = "docker", "network.docker", f.engine.set.Pos().String(), "http"
	return e
}

// engineCall judges a request, and finds out whose container it is about.
func (fl *flow) engineCall(ctx context.Context, r *request) (docker.Call, error) {
	w := fl.f.engine
	if r.websocket {
		return docker.Call{}, &docker.Refused{Status: http.StatusForbidden, Reason: "WebSockets are not open to the sandbox there"}
	}
	path, query, _ := strings.Cut(r.target, "?")
	body, err := readEngineBody(r)
	if err != nil {
		return docker.Call{}, err
	}
	call, err := w.set.Judge(docker.Request{Method: r.method, Path: path, Query: query, Upgrade: r.upgrade, Body: body})
	if err != nil {
		return call, err
	}
	if call.Exec != "" {
		answer, err := w.ask(ctx, call.Version+"/exec/"+call.Exec+"/json", nil)
		if err != nil {
			return call, err
		}
		if call.Container, err = w.set.ExecOf(answer); err != nil {
			return call, err
		}
	}
	if call.Container != "" {
		answer, err := w.ask(ctx, call.Version+"/containers/"+call.Container+"/json", nil)
		if err != nil {
			return call, err
		}
		id, err := w.set.Owned(answer)
		if err != nil {
			return call, err
		}
		call.Path = strings.Replace(call.Path, "{id}", id, 1)
	}
	if call.Kind == docker.Create {
		return call, fl.engineRoom(ctx, call)
	}
	return call, nil
}

// engineRoom holds the making of containers until this one is made, and refuses
// it when there are enough.
func (fl *flow) engineRoom(ctx context.Context, call docker.Call) error {
	fl.s.making.mu.Lock()
	fl.ends = append(fl.ends, fl.s.making.mu.Unlock)
	w := fl.f.engine
	answer, err := w.ask(ctx, call.Version+"/containers/json", url.Values{"all": {"1"}, "filters": {w.set.Own()}})
	if err != nil {
		return err
	}
	n, err := docker.Count(answer)
	if err == nil && n >= w.set.Most() {
		err = &docker.Refused{Status: http.StatusForbidden, Reason: "the run has as many containers as network.docker.max_containers allows; remove one first"}
	}
	return err
}

// readEngineBody reads a request's body as a whole.
func readEngineBody(r *request) ([]byte, error) {
	if r.body == nil {
		return nil, nil
	}
	if r.due != nil {
		r.due(time.Now().Add(engineBodyWait))
	}
	b, err := io.ReadAll(io.LimitReader(r.body, maxEngineBody+1))
	switch {
	case err != nil:
		return nil, &docker.Refused{Status: http.StatusBadRequest, Reason: "the body cannot be read"}
	case len(b) > maxEngineBody:
		return nil, &docker.Refused{Status: http.StatusRequestEntityTooLarge, Reason: "the body is too large"}
	}
	return b, nil
}

// engineURL is the address of something in the engine.
func engineURL(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "http", Host: "docker", Opaque: path, RawQuery: query.Encode()}
}

// ask asks the engine a question of ours.
func (w *engineWay) ask(ctx context.Context, path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, engineAskWait)
	defer cancel()
	out := &http.Request{Method: http.MethodGet, URL: engineURL(path, query), Host: "docker", Header: http.Header{"User-Agent": nil}}
	resp, err := w.inner.RoundTrip(out.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNotFound {
		return nil, docker.NotOurs()
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New("the engine answered a question with " + resp.Status)
	}
	return readAnswer(resp.Body)
}

func readAnswer(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxEngineAnswer+1))
	if err == nil && len(b) > maxEngineAnswer {
		err = errors.New("the engine's answer is too large")
	}
	return b, err
}

// engineOut writes the judged call. Nothing of the client's own head goes out.
func (fl *flow) engineOut(ctx context.Context, r *request, call docker.Call) {
	header := http.Header{"User-Agent": nil}
	out := &http.Request{
		Method: call.Method, URL: engineURL(call.Path, call.Query), Host: "docker", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Body: http.NoBody,
	}
	if call.Body != nil {
		header["Content-Type"] = []string{"application/json"}
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(call.Body)), int64(len(call.Body))
	}
	if call.Hijack {
		header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{"tcp"}
		fl.upgrades = "tcp"
	}
	fl.out = out.WithContext(ctx)
	fl.replies = append(fl.replies, func(resp *http.Response) *refusal { return fl.engineAnswer(call, resp) }) //nolint:bodyclose // its owner closes it
}

// engineFields are what of an answer's head reaches the client.
var engineFields = []string{"Content-Type", "Content-Length", "Api-Version", "Docker-Experimental", "Ostype", "Server"} //nolint:gochecknoglobals // a constant

// engineAnswer cuts an answer down to what is for the sandbox.
func (fl *flow) engineAnswer(call docker.Call, resp *http.Response) *refusal {
	kept := http.Header{}
	for _, name := range engineFields {
		if v, ok := resp.Header[name]; ok {
			kept[name] = v
		}
	}
	resp.Header = kept
	if resp.StatusCode != http.StatusOK || call.Kind == docker.Pass || call.Kind == docker.Create {
		return nil
	}
	b, err := readAnswer(resp.Body)
	_ = resp.Body.Close()
	if err == nil {
		b, err = fl.f.engine.set.Cut(call.Kind, b)
	}
	if err != nil {
		return engineRefusal(err)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	return nil
}

const (
	noteEngine = "This is a decision of the sandbox's policy about the container engine. Retrying will not help."
	engineDown = "the container engine cannot be reached"
)

// engineRefusal turns an error into an answer.
func engineRefusal(err error) *refusal {
	var refused *docker.Refused
	if errors.As(err, &refused) {
		return newRefusal(refused.Status, errPolicy, noteEngine, refused.Reason)
	}
	r := unreachable(netpolicy.Host{}, http.StatusBadGateway, engineDown)
	r.detail = err.Error()
	return r
}

// failedEngine is the answer when the way to the engine failed.
func failedEngine(r *refusal) *refusal {
	if r.Error != errUpstream {
		return r
	}
	refused := unreachable(netpolicy.Host{}, r.status, engineDown)
	refused.detail = r.detail
	return refused
}

// asEngine says a refusal in the words of the engine's clients, which show their
// user one message.
func (r *refusal) asEngine() *refusal {
	text := "hermes-wrap: " + r.Reason
	if r.Error != errUpstream {
		text += " (" + r.ID + ")"
	}
	b, err := json.Marshal(struct { //nolint:errchkjson // strings only
		Message string `json:"message"`
	}{text})
	if err == nil {
		r.content, r.contentType = append(b, '\n'), "application/json"
	}
	return r
}
