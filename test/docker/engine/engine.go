// Package engine stands in for a container engine: it speaks enough of the API to
// be used by a client, runs nothing, and keeps what it was sent.
package engine

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// Container is one that was made.
type Container struct {
	ID, Name string
	Labels   map[string]string
	Body     string // as it was sent
	Started  bool
}

// Engine is the stand-in. Serve it with an http.Server.
type Engine struct {
	mu         sync.Mutex
	containers []*Container
	execs      map[string]string // identifier to container
	seen       []string
	made       int
}

// Add makes a container that nobody asked for through the sandbox.
func (e *Engine) Add(name string, labels map[string]string) *Container {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lockedAdd(name, labels, "")
}

func (e *Engine) lockedAdd(name string, labels map[string]string, body string) *Container {
	c := &Container{ID: e.lockedID(), Name: name, Labels: labels, Body: body}
	e.containers = append(e.containers, c)
	return c
}

func (e *Engine) lockedID() string {
	e.made++
	sum := sha256.Sum256(fmt.Append(nil, e.made))
	return hex.EncodeToString(sum[:])
}

// AddExec makes a command in a container.
func (e *Engine) AddExec(container string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lockedExec(container)
}

func (e *Engine) lockedExec(container string) string {
	if e.execs == nil {
		e.execs = map[string]string{}
	}
	id := e.lockedID()
	e.execs[id] = container
	return id
}

// Containers gives those that there are.
func (e *Engine) Containers() (out []Container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.containers {
		out = append(out, *c)
	}
	return out
}

// Seen gives the requests that arrived: "POST /containers/create?name=a".
func (e *Engine) Seen() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.seen...)
}

// lockedFind resolves as the engine does: a whole identifier, then a name, then the
// beginning of an identifier.
func (e *Engine) lockedFind(ref string) *Container {
	for _, fits := range []func(*Container) bool{
		func(c *Container) bool { return c.ID == ref },
		func(c *Container) bool { return c.Name == ref },
		func(c *Container) bool { return strings.HasPrefix(c.ID, ref) },
	} {
		for _, c := range e.containers {
			if fits(c) {
				return c
			}
		}
	}
	return nil
}

// ServeHTTP answers a request.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := r.URL.Path
	if rest, ok := strings.CutPrefix(path, "/v1."); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			path = rest[i:]
		}
	}
	e.mu.Lock()
	e.seen = append(e.seen, r.Method+" "+r.URL.RequestURI())
	e.mu.Unlock()
	part := strings.Split(strings.Trim(path, "/"), "/")
	w.Header().Set("Api-Version", "1.47")
	w.Header().Set("X-Host-Secret", "a field that nobody listed")
	switch {
	case part[0] == "containers" && len(part) == 2 && part[1] == "json":
		e.list(w, r)
	case part[0] == "containers" && len(part) == 2 && part[1] == "create":
		e.create(w, r, string(body))
	case part[0] == "containers" && len(part) >= 2:
		e.container(w, r, part[1], strings.Join(part[2:], "/"))
	case part[0] == "exec" && len(part) == 3:
		e.exec(w, r, part[1], part[2])
	case path == "/version":
		answer(w, 200, map[string]any{"Version": "27.3.1", "ApiVersion": "1.47", "Os": "linux", "Arch": "amd64", "KernelVersion": "the host's"})
	case path == "/info":
		answer(w, 200, map[string]any{"ServerVersion": "27.3.1", "OSType": "linux", "Name": "the-host", "NCPU": 4, "Driver": "overlay2"})
	case path == "/images/json":
		answer(w, 200, []any{
			map[string]any{"Id": "sha256:a", "RepoTags": []string{"python:3.12-slim", "private:1"}, "RepoDigests": []string{"private@sha256:1"}},
			map[string]any{"Id": "sha256:b", "RepoTags": []string{"internal/secret:1"}},
		})
	default: // whatever else a real one would do
		answer(w, 200, map[string]any{"reached": path})
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func missing(w http.ResponseWriter, what string) {
	answer(w, 404, map[string]string{"message": "No such container: " + what})
}

func (e *Engine) list(w http.ResponseWriter, r *http.Request) {
	var filters struct{ Label []string }
	_ = json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filters)
	out := []any{}
	for _, c := range e.Containers() {
		fits := true
		for _, l := range filters.Label {
			name, value, _ := strings.Cut(l, "=")
			fits = fits && c.Labels[name] == value
		}
		if fits {
			out = append(out, map[string]any{"Id": c.ID, "Names": []string{"/" + c.Name}, "Labels": c.Labels})
		}
	}
	answer(w, 200, out)
}

func (e *Engine) create(w http.ResponseWriter, r *http.Request, body string) {
	var config struct{ Labels map[string]string }
	if err := json.Unmarshal([]byte(body), &config); err != nil {
		answer(w, 400, map[string]string{"message": err.Error()})
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	name := r.URL.Query().Get("name")
	for _, c := range e.containers {
		if name != "" && c.Name == name {
			answer(w, 409, map[string]string{"message": "Conflict. The container name is already in use"})
			return
		}
	}
	answer(w, 201, map[string]any{"Id": e.lockedAdd(name, config.Labels, body).ID, "Warnings": []string{}})
}

func (e *Engine) container(w http.ResponseWriter, r *http.Request, ref, what string) {
	e.mu.Lock()
	c := e.lockedFind(ref)
	e.mu.Unlock()
	if c == nil {
		missing(w, ref)
		return
	}
	switch {
	case r.Method == http.MethodDelete:
		e.mu.Lock()
		for i := range e.containers {
			if e.containers[i] == c {
				e.containers = append(e.containers[:i], e.containers[i+1:]...)
				break
			}
		}
		e.mu.Unlock()
		w.WriteHeader(204)
	case what == "json":
		answer(w, 200, map[string]any{"Id": c.ID, "Name": "/" + c.Name, "Config": map[string]any{"Labels": c.Labels}})
	case what == "exec":
		answer(w, 201, map[string]string{"Id": e.AddExec(c.ID)})
	case what == "attach":
		hijack(w, r)
	case what == "logs":
		w.Header().Set("Content-Type", "application/vnd.docker.raw-stream")
		_, _ = io.WriteString(w, "a line\n")
	case what == "wait":
		answer(w, 200, map[string]int{"StatusCode": 0})
	default:
		w.WriteHeader(204)
	}
}

func (e *Engine) exec(w http.ResponseWriter, r *http.Request, id, what string) {
	e.mu.Lock()
	container, ok := e.execs[id]
	e.mu.Unlock()
	switch {
	case !ok:
		missing(w, id)
	case what == "json":
		answer(w, 200, map[string]any{"ID": id, "ContainerID": container, "ExitCode": 0})
	case what == "start":
		hijack(w, r)
	default:
		w.WriteHeader(200)
	}
}

// hijack answers as the engine does and then says what it read once its client
// has nothing more to say.
func hijack(w http.ResponseWriter, r *http.Request) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	if r.Header.Get("Upgrade") == "" {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\nno input\n")
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nready\n")
	said, _ := io.ReadAll(bufio.NewReader(rw.Reader))
	_, _ = io.WriteString(c, "heard: "+string(said))
	if half, ok := c.(*net.UnixConn); ok {
		_ = half.CloseWrite()
	}
}
