// Package docker has a command inside use a container engine, with the real
// binary and an engine that runs nothing.
package docker

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/docker/engine"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

// patience bounds every wait.
const patience = 60 * time.Second

type bench struct {
	wraptest.World
	engine         *engine.Engine
	dir, socket    string
	client, policy string
}

func start(t *testing.T) *bench {
	t.Helper()
	w := wraptest.New(t)
	b := &bench{World: w, engine: &engine.Engine{}, dir: w.Dir(t, "ws"), socket: filepath.Join(w.Dir(t, "engine"), "docker.sock")}
	l, err := net.Listen("unix", b.socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(b.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: b.engine, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	tmp := filepath.Join(t.TempDir(), "client")
	build := exec.Command("go", "build", "-trimpath", "-o", tmp, "./client")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the client: %v\n%s", err, out)
	}
	text, err := os.ReadFile(tmp)
	if err != nil {
		t.Fatal(err)
	}
	b.client = filepath.Join(b.dir, "client")
	w.Write(t, b.client, string(text))
	if err := os.Chmod(b.client, 0o755); err != nil {
		t.Fatal(err)
	}
	b.policy = w.PolicyFile(t, "docker", `version: 1
name: docker-test
extends: [builtin:strict]
filesystem:
  exec: ["`+b.dir+`"]
network:
  docker:
    socket: `+b.socket+`
    images: ["python:3.12*"]
`)
	return b
}

func TestAContainerFromInside(t *testing.T) {
	b := start(t)
	db := b.engine.Add("db", nil)
	got := wraptest.Run(t, b.Wrap(b.dir, b.policy, b.client, "life"), patience)
	want := "create 201\nstart 204\nexec 201 \"ready\\nheard: hello\"\nattach \"ready\\nheard: hello\"\nlogs 200 a line\nwait 200\n"
	if got.Exit != 0 || got.Out != want {
		t.Errorf("got %d, %q\n%s\nwant %q", got.Exit, got.Out, got.Err, want)
	}
	if !strings.Contains(got.Err, "container engine") {
		t.Errorf("no warning at the launch: %q", got.Err)
	}
	if left := b.engine.Containers(); len(left) != 1 || left[0].ID != db.ID {
		t.Errorf("left with the engine: %+v", left)
	}
}

// Each is carried out by the engine when it is asked directly.
func TestEscapesThroughTheEngine(t *testing.T) {
	b := start(t)
	b.engine.Add("db", nil)
	attacks := []string{
		`POST /v1.47/containers/create {"Image":"python:3.12","HostConfig":{"Privileged":true}}`,
		`POST /v1.47/containers/create {"Image":"python:3.12","HostConfig":{"Binds":["/etc:/host"]}}`,
		`POST /v1.47/containers/create {"Image":"python:3.12","HostConfig":{"PidMode":"host"}}`,
		`POST /v1.47/containers/create {"Image":"debian:12"}`,
		`POST /v1.47/containers/db/start`,
		`POST /v1.47/containers/db/exec {"Cmd":["sh"]}`,
		`POST /v1.47/build`,
	}
	direct := b.Bare(b.dir, append([]string{b.client}, attacks...)...)
	direct.Env = append(direct.Env, "DOCKER_HOST=unix://"+b.socket)
	control := lines(wraptest.Run(t, direct, patience).Out)
	before := len(b.engine.Containers())
	inside := lines(wraptest.Run(t, b.Wrap(b.dir, b.policy, append([]string{b.client}, attacks...)...), patience).Out)
	if len(control) != len(attacks) || len(inside) != len(attacks) {
		t.Fatalf("got %q and %q", control, inside)
	}
	for i, a := range attacks {
		if !strings.HasPrefix(control[i], "2") {
			t.Errorf("control: %s: got %q", a, control[i])
		}
		if !strings.HasPrefix(inside[i], "403 ") && !strings.HasPrefix(inside[i], "404 ") {
			t.Errorf("%s: got %q", a, inside[i])
		}
	}
	if now := len(b.engine.Containers()); now != before {
		t.Errorf("there are %d containers, and were %d", now, before)
	}
	// The engine's own socket is not there.
	got := wraptest.Run(t, b.Wrap(b.dir, b.policy, "/usr/bin/env", "DOCKER_HOST=unix://"+b.socket, b.client, "GET /_ping"), patience)
	if got.Exit != 1 || !strings.Contains(got.Out, "no such file or directory") {
		t.Errorf("the engine's own socket: got %d, %q, %q", got.Exit, got.Out, got.Err)
	}
}

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

// A run that is stopped from outside leaves no container either.
func TestContainersGoWithTheRun(t *testing.T) {
	b := start(t)
	cmd := b.Wrap(b.dir, b.policy, "/bin/sh", "-c", b.client+" life && exec sleep 600")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.After(patience)
	for tick := time.NewTicker(20 * time.Millisecond); len(b.engine.Containers()) == 0; {
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("ended: %v\n%s", err, errs.String())
		case <-deadline:
			t.Fatal("no container was made")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the run does not end")
	}
	if left := b.engine.Containers(); len(left) != 0 {
		t.Errorf("left with the engine: %+v\n%s", left, errs.String())
	}
}
