package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/docker"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/test/docker/engine"
)

// engineWorld is a proxy before an engine, each at a socket of its own.
type engineWorld struct {
	*world
	engine        *engine.Engine
	inside, outer string
}

func newEngineWorld(t *testing.T) *engineWorld {
	t.Helper()
	dir := t.TempDir()
	e := &engineWorld{world: newWorld(t, policy.Network{}), engine: &engine.Engine{}, inside: filepath.Join(dir, "i"), outer: filepath.Join(dir, "o")}
	e.srv.Docker = docker.Compile(policy.Docker{Images: []policy.Name{{Text: "python:3.12*"}}, MaxContainers: 3}, "run-1")
	outer, err := net.Listen("unix", e.outer)
	if err != nil {
		t.Fatal(err)
	}
	real := &http.Server{Handler: e.engine, ReadHeaderTimeout: time.Minute}
	inside, err := net.Listen("unix", e.inside)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = real.Serve(outer) })
	dial := func(context.Context) (net.Conn, error) { return net.Dial("unix", e.outer) }
	wg.Go(func() {
		for {
			c, err := inside.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { e.srv.ServeDocker(context.Background(), c, dial) })
		}
	})
	t.Cleanup(func() { _ = inside.Close(); _ = e.srv.Close(); _ = real.Close(); wg.Wait() })
	return e
}

// send sends a text to a socket and gives the first answer.
func (e *engineWorld) send(socket, text string) (int, string) {
	e.t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(c, text)
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return 0, err.Error()
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, ""
	}
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func engineHead(method, target, body string, fields ...string) string {
	head := method + " " + target + " HTTP/1.1\r\nHost: docker\r\nUser-Agent: Docker-Client/27.3.1 (linux)\r\n"
	if body != "" {
		head += "Content-Type: application/json\r\nContent-Length: " + itoa(len(body)) + "\r\n"
	}
	return head + strings.Join(append(fields, ""), "\r\n") + "\r\n" + body
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// make makes a container through the proxy.
func (e *engineWorld) make(name string) string {
	e.t.Helper()
	status, body := e.send(e.inside, engineHead("POST", "/v1.47/containers/create?name="+name, `{"Image":"python:3.12-slim","HostConfig":{"Binds":null}}`))
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(body), &made); status != 201 || err != nil {
		e.t.Fatalf("create: got %d, %s", status, body)
	}
	return made.ID
}

func TestDockerLifeOfAContainer(t *testing.T) {
	e := newEngineWorld(t)
	id := e.make("hermes-1")
	for _, step := range []struct {
		method, target, body string
		status               int
		in                   string
	}{
		{"HEAD", "/_ping", "", 200, ""},
		{"GET", "/v1.47/version", "", 200, `"ApiVersion":"1.47"`},
		{"GET", "/v1.47/containers/hermes-1/json", "", 200, id},
		{"POST", "/v1.47/containers/" + id[:12] + "/start", "", 204, ""},
		{"GET", "/v1.47/containers/hermes-1/logs?stdout=1&stderr=1&tail=all", "", 200, "a line\n"},
		{"POST", "/v1.47/containers/" + id + "/wait?condition=next-exit", "", 200, `"StatusCode":0`},
		{"POST", "/v1.47/containers/" + id + "/kill?signal=KILL", "", 204, ""},
		{"GET", "/v1.47/containers/json?all=1", "", 200, id},
		{"DELETE", "/v1.47/containers/hermes-1?force=1&v=1", "", 204, ""},
		{"GET", "/v1.47/containers/hermes-1/json", "", 404, "No such container"},
	} {
		if status, body := e.send(e.inside, engineHead(step.method, step.target, step.body)); status != step.status || !strings.Contains(body, step.in) {
			t.Errorf("%s %s: got %d, %q, want %d, %q", step.method, step.target, status, body, step.status, step.in)
		}
	}
	if !slices.Contains(e.engine.Seen(), "POST /v1.47/containers/"+id+"/start") {
		t.Errorf("the engine was not asked by the whole identifier: %q", e.engine.Seen())
	}
}

func TestDockerHijack(t *testing.T) {
	e := newEngineWorld(t)
	id := e.make("hermes-1")
	status, body := e.send(e.inside, engineHead("POST", "/v1.47/containers/"+id+"/exec", `{"AttachStdin":true,"AttachStdout":true,"Cmd":["sh"],"Privileged":false}`))
	var exec struct{ ID string }
	if err := json.Unmarshal([]byte(body), &exec); status != 201 || err != nil {
		t.Fatalf("exec: got %d, %s", status, body)
	}
	for target, sent := range map[string]string{"/v1.47/containers/" + id + "/attach?stdin=1&stdout=1&stream=1": "", "/v1.47/exec/" + exec.ID + "/start": `{"Detach":false,"Tty":false}`} {
		c, err := net.Dial("unix", e.inside)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = io.WriteString(c, engineHead("POST", target, sent, "Connection: Upgrade", "Upgrade: tcp"))
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "tcp" {
			t.Fatalf("%s: got %v, %v", target, resp, err)
		}
		if line, err := in.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%s: got %q, %v", target, line, err)
		}
		_, _ = io.WriteString(c, "hello")
		if err := c.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(in); string(rest) != "heard: hello" || err != nil {
			t.Errorf("%s: got %q, %v", target, rest, err)
		}
		_ = c.Close()
	}
}

// Each attack reaches the engine when it is asked directly.
func TestDockerAttacks(t *testing.T) {
	e := newEngineWorld(t)
	foreign := e.engine.Add("db", map[string]string{"hermes-wrap.run": "run-2"})
	e.engine.Add("plain", nil)
	exec := e.engine.AddExec(foreign.ID)
	id := e.make("hermes-1")
	upgrade := []string{"Connection: Upgrade", "Upgrade: tcp"}
	smuggled := engineHead("POST", "/containers/db/start", "")
	for _, a := range []struct {
		name, text string
		control    bool // whether the engine itself would do it
		status     []int
	}{
		{"another's container", engineHead("POST", "/v1.47/containers/db/start", ""), true, []int{404}},
		{"by identifier", engineHead("POST", "/v1.47/containers/"+foreign.ID+"/start", ""), true, []int{404}},
		{"by a part of it", engineHead("GET", "/v1.47/containers/"+foreign.ID[:8]+"/json", ""), true, []int{404}},
		{"one without a label", engineHead("DELETE", "/v1.47/containers/plain?force=1", ""), true, []int{404}},
		{"its logs", engineHead("GET", "/v1.47/containers/db/logs?stdout=1", ""), true, []int{404}},
		{"attach to it", engineHead("POST", "/v1.47/containers/db/attach?stream=1&stdin=1", "", upgrade...), true, []int{404}},
		{"a command in it", engineHead("POST", "/v1.47/containers/db/exec", `{"Cmd":["sh"]}`), true, []int{404}},
		{"start a command in it", engineHead("POST", "/v1.47/exec/"+exec+"/start", `{"Detach":false}`, upgrade...), true, []int{404}},
		{"look at a command in it", engineHead("GET", "/v1.47/exec/"+exec+"/json", ""), true, []int{404}},
		{"privileged command", engineHead("POST", "/v1.47/containers/"+id+"/exec", `{"Cmd":["sh"],"Privileged":true}`), true, []int{403}},
		{"its file system", engineHead("GET", "/v1.47/containers/db/archive?path=/", ""), true, []int{403}},
		{"everything running", engineHead("GET", "/v1.47/events", ""), true, []int{403}},
		{"an image", engineHead("GET", "/v1.47/images/internal/secret:1/json", ""), true, []int{403}},
		{"tag an image", engineHead("POST", "/v1.47/images/evil/tag?repo=python&tag=3.12", ""), true, []int{403}},
		{"build", engineHead("POST", "/v1.47/build?remote=http://x", ""), true, []int{403}},
		{"volumes", engineHead("POST", "/v1.47/volumes/create", `{"Name":"x","DriverOpts":{"type":"none","o":"bind","device":"/"}}`), true, []int{403}},
		{"privileged container", engineHead("POST", "/v1.47/containers/create", `{"Image":"python:3.12","HostConfig":{"Privileged":true}}`), true, []int{403}},
		{"the root, mounted", engineHead("POST", "/v1.47/containers/create", `{"Image":"python:3.12","HostConfig":{"Binds":["/:/host"]}}`), true, []int{403}},
		{"another image", engineHead("POST", "/v1.47/containers/create", `{"Image":"debian:12"}`), true, []int{403}},
		{"another's name", engineHead("POST", "/v1.47/containers/create?name=db", `{"Image":"python:3.12"}`), false, []int{409}},
		{"two slashes", engineHead("POST", "/v1.47//containers/db/start", ""), false, []int{400}},
		{"an encoded slash", engineHead("POST", "/v1.47/containers%2Fdb%2Fstart", ""), true, []int{400}},
		{"an encoded letter", engineHead("POST", "/v1.47/%63ontainers/db/start", ""), true, []int{400}},
		{"dot segments", engineHead("POST", "/v1.47/containers/"+id+"/../db/start", ""), false, []int{400}},
		{"another version", engineHead("POST", "/v1.24/containers/db/start", `{"Privileged":true}`), true, []int{400}},
		{"as for a proxy", engineHead("POST", "http://docker/v1.47/containers/db/start", ""), true, []int{404}},
		{"two lengths", "POST /v1.47/containers/create HTTP/1.1\r\nHost: docker\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd" + smuggled, false, []int{400}},
		{"length and chunks", "POST /v1.47/containers/create HTTP/1.1\r\nHost: docker\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, false, []int{400}},
		{"a chunk that lies", "POST /v1.47/containers/create HTTP/1.1\r\nHost: docker\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + smuggled, false, []int{400}},
		{"a body on start", engineHead("POST", "/v1.47/containers/"+id+"/start", `{"Privileged":true}`), true, []int{400}},
		{"an upgrade elsewhere", engineHead("GET", "/v1.47/containers/"+id+"/json", "", upgrade...), true, []int{400}},
		{"the builder's session", engineHead("POST", "/v1.47/session", "", "Connection: Upgrade", "Upgrade: h2c"), true, []int{403}},
		{"a WebSocket", engineHead("GET", "/v1.47/containers/"+id+"/attach/ws", "", "Connection: Upgrade", "Upgrade: websocket"), true, []int{403}},
		{"a name like an identifier", engineHead("POST", "/v1.47/containers/create?name="+strings.Repeat("ab", 6), `{"Image":"python:3.12"}`), true, []int{403}},
		{"too large a body", engineHead("POST", "/v1.47/containers/create", `{"Image":"python:3.12","Cmd":["`+strings.Repeat("x", maxEngineBody)+`"]}`), true, []int{413}},
	} {
		t.Run(a.name, func(t *testing.T) {
			before := len(e.engine.Containers())
			seen := len(e.engine.Seen())
			status, body := e.send(e.inside, a.text)
			if !slices.Contains(a.status, status) || !strings.HasPrefix(body, `{"message":"`) {
				t.Errorf("got %d, %q, want %d", status, body, a.status)
			}
			if now := len(e.engine.Containers()); now != before {
				t.Errorf("there are %d containers, and were %d", now, before)
			}
			for _, r := range e.engine.Seen()[seen:] {
				if !strings.HasPrefix(r, "GET ") && status != 409 {
					t.Errorf("the engine was asked to %s", r)
				}
			}
			if !a.control {
				return
			}
			if status, body := e.send(e.outer, a.text); status >= 400 || status == 0 {
				t.Errorf("control: got %d, %q", status, body)
			}
		})
	}
}

func TestDockerAnswersAreCutDown(t *testing.T) {
	e := newEngineWorld(t)
	e.engine.Add("db", nil)
	for target, not := range map[string]string{
		"/v1.47/version": "KernelVersion", "/v1.47/info": "the-host", "/v1.47/images/json": "private", "/v1.47/containers/json?all=1": "db",
	} {
		if _, body := e.send(e.outer, engineHead("GET", target, "")); !strings.Contains(body, not) {
			t.Errorf("control: %s: got %q, want %q in it", target, body, not)
		}
		if status, body := e.send(e.inside, engineHead("GET", target, "")); status != 200 || strings.Contains(body, not) {
			t.Errorf("%s: got %d, %q", target, status, body)
		}
	}
	c, err := net.Dial("unix", e.inside)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, engineHead("GET", "/_ping", ""))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.Header.Get("Api-Version") != "1.47" || resp.Header.Get("X-Host-Secret") != "" {
		t.Errorf("got %v, %v", resp, err)
	}
}

func TestDockerBoundsContainers(t *testing.T) {
	e := newEngineWorld(t)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() { e.send(e.inside, engineHead("POST", "/v1.47/containers/create", `{"Image":"python:3.12"}`)) })
	}
	wg.Wait()
	if n := len(e.engine.Containers()); n != 3 {
		t.Errorf("got %d containers, want 3", n)
	}
	for _, c := range e.engine.Containers() {
		if c.Labels[docker.Label] != "run-1" {
			t.Errorf("got labels %v", c.Labels)
		}
	}
}

func TestDockerIsRecorded(t *testing.T) {
	e := newEngineWorld(t)
	id := e.make("hermes-1")
	e.send(e.inside, engineHead("POST", "/v1.47/build", ""))
	var allowed, denied bool
	for _, ev := range e.events() {
		if ev.Host != "docker" || ev.Rule != "network.docker" {
			continue
		}
		allowed = allowed || ev.Verdict == audit.Allow && strings.HasPrefix(ev.Path, "/v1.47/containers/create?name=")
		denied = denied || ev.Verdict == audit.Deny && strings.HasPrefix(ev.Path, "/v1.47/build") && ev.ID != ""
	}
	if !allowed || !denied {
		t.Errorf("allowed %v, denied %v (container %s): %+v", allowed, denied, id, e.events())
	}
}

func TestDockerWithoutAnEngine(t *testing.T) {
	e := newEngineWorld(t)
	e.outer = filepath.Join(t.TempDir(), "none")
	if status, body := e.send(e.inside, engineHead("GET", "/_ping", "")); status != 502 || !strings.Contains(body, engineDown) {
		t.Errorf("got %d, %q", status, body)
	}
}

// A proxy that is started again knows the run's containers; that of another run
// does not.
func TestDockerAfterARestart(t *testing.T) {
	e := newEngineWorld(t)
	e.make("hermes-1")
	for run, want := range map[string]int{"run-1": 200, "run-2": 404} {
		next := newWorld(t, policy.Network{})
		next.srv.Docker = docker.Compile(policy.Docker{Images: []policy.Name{{Text: "python:3.12*"}}}, run)
		ours, theirs := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() {
			next.srv.ServeDocker(context.Background(), theirs, func(context.Context) (net.Conn, error) { return net.Dial("unix", e.outer) })
		})
		_ = ours.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = io.WriteString(ours, engineHead("GET", "/v1.47/containers/hermes-1/json", ""))
		resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%s: got %v, %v, want %d", run, resp, err, want)
		}
		_ = ours.Close()
		wg.Wait()
	}
}
