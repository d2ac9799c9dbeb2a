// Package soak runs one sandbox for a long time under load: two hundred
// connections of every kind, servers and clients that break, connections that
// are killed at random, and a reload each second. At its end nothing may have
// grown, and the record must hold every decision once.
//
// HERMES_SOAK is how long it runs (45s).
package soak

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

func duration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("HERMES_SOAK")
	if text == "" {
		text = "45s"
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("parse HERMES_SOAK: %v", err)
	}
	return d
}

// soak is one run under load.
type soak struct {
	wraptest.World
	t       *testing.T
	dir     string // the workspace
	ports   map[string]int
	ca      string
	metrics string
	record  string
	cmd     *exec.Cmd
	stderr  strings.Builder

	reloads, refused int // by the command, as expected
}

func TestSoak(t *testing.T) {
	length := duration(t)
	o := newOutside(t)
	s := &soak{World: wraptest.New(t), t: t}
	s.dir = s.Dir(t, "soak")
	s.ports = map[string]int{
		hostAPI: o.api(), hostTCP: o.each(false, echo), hostPass: o.each(true, echo), hostBroken: o.each(true, broken), hostSecret: 4443,
	}
	s.prepare(o.ca)
	s.start()
	idle := s.awaitMetrics()
	t.Logf("at the start: %v", idle)
	samples := s.soak(length)
	s.finish(idle)
	flat(t, samples)
	s.checkRecord()
}

// prepare writes what the run needs.
func (s *soak) prepare(ca []byte) {
	state := s.Dir(s.t, "state")
	s.ca, s.metrics, s.record = filepath.Join(state, "ca.pem"), filepath.Join(state, "metrics"), filepath.Join(state, "audit.jsonl")
	s.Write(s.t, s.ca, string(ca))
	s.writePolicy(allRules)
	program := filepath.Join(s.dir, "load")
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/hermes-wrap/hermes-wrap/test/soak/load")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("build the load: %v\n%s", err, out)
	}
	at := func(host string) string { return fmt.Sprintf("%s:%d", host, s.ports[host]) }
	config, err := json.Marshal(map[string]any{
		"API": at(hostAPI), "WS": at(hostAPI), "TCP": at(hostTCP), "Pass": at(hostPass), "Broken": at(hostBroken), "Secret": at(hostSecret),
		"HTTP1": 70, "HTTP2": 40, "Sockets": 30, "Tunnels": 25, "Passed": 25, "Breakers": 10, "Pause": 1500,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Write(s.t, filepath.Join(s.dir, "load.json"), string(config))
}

func (s *soak) start() {
	s.cmd = s.Wrap(s.dir, filepath.Join(s.Home, "policies", "soak.yaml"), filepath.Join(s.dir, "load"))
	s.cmd.Stderr, s.cmd.Stdout = &s.stderr, &s.stderr
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
			_ = s.cmd.Wait()
			s.t.Logf("stderr: %s", s.stderr.String())
		}
	})
}

// The policies that take turns. The first and the third differ in what is
// allowed, the other two are refused.
const (
	allRules = iota
	mistaken
	fewRules
	static
	policies
)

func (s *soak) writePolicy(which int) {
	deny, tunnels, extra := "", "", ""
	if which == fewRules {
		deny = `, deny: [{paths: ["/n/odd/**"]}]`
	} else {
		tunnels = fmt.Sprintf("    - {name: tcp, host: %s, protocol: tcp, ports: [%d]}\n", hostTCP, s.ports[hostTCP]) +
			fmt.Sprintf("    - {name: pass, host: %s, tls: pass, ports: [%d]}\n", hostPass, s.ports[hostPass]) +
			fmt.Sprintf("    - {name: ws, host: %s, ports: [%d], protocol: websocket, paths: [\"/ws/**\"]}\n", hostAPI, s.ports[hostAPI])
	}
	switch which {
	case mistaken:
		extra = "    - {name: mistake, hots: x.example.org}\n"
	case static:
		extra = "limits: {open_files: 4321}\n"
	}
	text := "version: 1\nname: soak\nworkspace: {path: ., access: write, exec: true}\n" +
		"audit: {file: " + s.record + ", required: true, max_size: 32M, keep: 1000}\n" +
		"metrics: {socket: " + s.metrics + "}\n" +
		"network:\n  ca: [" + s.ca + "]\n" +
		"  private:\n    - {cidr: 127.0.0.1, reason: servers of the soak}\n  hosts:\n"
	for _, host := range []string{hostAPI, hostTCP, hostPass, hostBroken} {
		text += "    " + host + ": [127.0.0.1]\n"
	}
	text += "  rules:\n" +
		fmt.Sprintf("    - {name: api, host: %s, ports: [%d], allow: [{methods: [POST], paths: [\"/n/**\"]}]%s}\n", hostAPI, s.ports[hostAPI], deny) +
		fmt.Sprintf("    - {name: broken, host: %s, ports: [%d], access: full}\n", hostBroken, s.ports[hostBroken]) +
		tunnels + extra
	s.PolicyFile(s.t, "soak", text)
}

// soak lets the load work, and reloads each second.
func (s *soak) soak(length time.Duration) (samples []sample) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for began, i := time.Now(), 1; time.Since(began) < length; i++ {
		<-tick.C
		s.writePolicy(i % policies)
		s.reload(i % policies)
		if i%policies == mistaken { // in the same phase each time: the tunnels are open
			samples = append(samples, s.sample())
		}
		if s.t.Failed() && i > 10 {
			break
		}
	}
	return samples
}

// reload does so by the command, and looks at what it says.
func (s *soak) reload(which int) {
	ended := wraptest.Run(s.t, s.Bare(s.dir, s.Bin, "reload", "--json"), time.Minute)
	var answer struct {
		Error    string
		Static   []string
		Problems []any
	}
	if err := json.Unmarshal([]byte(ended.Out), &answer); err != nil {
		s.t.Errorf("reload: got %q and %q, exit %d, want JSON", ended.Out, ended.Err, ended.Exit)
		return
	}
	var ok bool
	switch which {
	case mistaken:
		ok = ended.Exit == 125 && len(answer.Problems) > 0
		s.refused++
	case static:
		ok = ended.Exit == 125 && len(answer.Static) == 1 && answer.Static[0] == "limits.open_files"
		s.refused++
	default:
		ok = ended.Exit == 0 && answer.Error == ""
		s.reloads++
	}
	if !ok {
		s.t.Errorf("reload of policy %d: got exit %d and %s", which, ended.Exit, ended.Out)
	}
}

// finish ends the load, sees that the proxy lets go of everything, and ends the
// run.
func (s *soak) finish(idle sample) {
	s.Write(s.t, filepath.Join(s.dir, "stop"), "")
	s.await("the load has stopped", time.Minute, func() bool {
		_, err := os.Stat(filepath.Join(s.dir, "stopped"))
		return err == nil
	})
	s.writePolicy(allRules)
	s.reload(allRules)
	var last sample
	s.await("the proxy holds what it held at the start", 2*time.Minute, func() bool {
		last = s.sample()
		return last["hermes_wrap_open_connections"] == 0 && last["hermes_wrap_open_tunnels"] == 0 && last["hermes_wrap_open_streams"] == 0 &&
			last["process_open_fds"] <= idle["process_open_fds"]+6 && last["go_goroutines"] <= idle["go_goroutines"]+10
	})
	s.t.Logf("at the end: %v", last)
	if got := last["hermes_wrap_reloads_total"]; got != float64(s.reloads) {
		s.t.Errorf("reloads: got %v in the metrics, want %d", got, s.reloads)
	}
	for _, name := range []string{"hermes_wrap_faults_total", "hermes_wrap_audit_failures_total"} {
		if last[name] != 0 {
			s.t.Errorf("%s: got %v, want 0", name, last[name])
		}
	}
	s.Write(s.t, filepath.Join(s.dir, "exit"), "")
	if code := wraptest.Exit(s.t, s.cmd.Wait()); code != 0 {
		s.t.Errorf("exit: got %d, want 0\n%s", code, s.stderr.String())
	}
}

func (s *soak) await(what string, limit time.Duration, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Errorf("waited %v in vain until %s: %v\n%s", limit, what, s.sample(), s.stderr.String())
			return
		}
	}
}
