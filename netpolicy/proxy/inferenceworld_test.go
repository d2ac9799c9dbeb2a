package proxy

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// modelRoutes are one route for each provider, and a second one for OpenAI's shape.
func modelRoutes() policy.Inference {
	return policy.Inference{Routes: []policy.Route{
		{Name: "first", Provider: "openai-compatible", Host: "first.example.org", Models: []string{"m*", "only-first"}},
		{Name: "claude", Provider: "anthropic", Host: "claude.example.org", Models: []string{"claude-*"}},
		{Name: "gemini", Provider: "gemini", Host: "gemini.example.org", Models: []string{"gemini-*"}},
		{Name: "local", Provider: "local", Host: "127.0.0.1", Port: 11434, Plain: true, Models: []string{"llama*"}},
		{Name: "second", Provider: "openai-compatible", Host: "second.example.org", Base: "/api/v1", Models: []string{"m*"}},
	}}
}

// modelWorld is a world with routes to models.
type modelWorld struct {
	*world
	stopped chan string

	mu   sync.Mutex
	seen []seenCall
}

type seenCall struct {
	host, path, body string
	header           http.Header
}

func newModelWorld(t testing.TB, in policy.Inference) *modelWorld {
	t.Helper()
	n := testNetwork()
	n.Private = []policy.PrivateRange{{CIDR: "127.0.0.1", Ports: []int{11434}, Reason: "the local server"}}
	w := &modelWorld{world: newWorld(t, n), stopped: make(chan string, 10)}
	w.srv.Rules = w.rules(n, in)
	w.srv.Stop = func(reason string) { w.stopped <- reason }
	return w
}

func (w *modelWorld) rules(n policy.Network, in policy.Inference) Rules {
	w.t.Helper()
	engine, err := netpolicy.Compile(n, in.Routes...)
	if err != nil {
		w.t.Fatal(err)
	}
	set, err := inference.Compile(in)
	if err != nil {
		w.t.Fatal(err)
	}
	return Rules{Engine: engine, Inference: set}
}

// provider publishes a provider that notes what it is asked and answers with f.
func (w *modelWorld) provider(host string, port int, f http.HandlerFunc) {
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.seen = append(w.seen, seenCall{host, r.URL.RequestURI(), string(b), r.Header.Clone()})
		w.mu.Unlock()
		f(rw, r)
	})
	if port != 11434 {
		w.serve(host, port, h)
		return
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	l := w.listen()
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	w.t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
	})
	w.world.mu.Lock()
	w.routes["127.0.0.1:11434"] = l.Addr().String()
	w.world.mu.Unlock()
}

func (w *modelWorld) asked() []seenCall {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// answers gives a body of a type.
func answers(kind, body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(rw, body)
	}
}

// streams gives pieces one by one.
func streams(pieces ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			_, _ = io.WriteString(rw, p)
			_ = http.NewResponseController(rw).Flush()
		}
	}
}

// ask sends a body to a host and gives the status and the answer.
func (w *modelWorld) ask(c *http.Client, url, body string) (int, string, http.Header) {
	w.t.Helper()
	q, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Authorization", "Bearer of-the-agent")
	resp, err := c.Do(q)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, readBody(w.t, resp), resp.Header
}

// used waits for the record of a call of a model.
func (w *modelWorld) used(n int) []audit.Event {
	w.t.Helper()
	for range 500 {
		var found []audit.Event
		for _, e := range w.events() {
			if e.Kind == audit.KindInference && e.Reason == "" {
				found = append(found, e)
			}
		}
		if len(found) >= n {
			return found
		}
		time.Sleep(2 * time.Millisecond)
	}
	w.t.Fatalf("audit: got %+v, want %d calls of models", w.events(), n)
	return nil
}
