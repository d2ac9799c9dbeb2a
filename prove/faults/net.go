package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// fetch is the client inside. "get NAME URL WANT" prints one line; what a rule or
// the servers' certificates forbid and that arrives all the same is an escape.
const fetch = `get() {
	curl -sS -m ${4:-6} -o /tmp/b.$1 -w '%{http_code}' "$2" >/tmp/c.$1 2>/tmp/e.$1
	if grep -q "from outside" /tmp/b.$1 2>/dev/null; then
		if [ $3 = refused ]; then echo "ESCAPED: $1 was let in"; return; fi
		if grep -q "to the end" /tmp/b.$1; then echo "net $1 whole"; else echo "net $1 part"; fi
	else
		echo "net $1 refused $(cat /tmp/c.$1)"
	fi
}
`

// stalls are clients that begin something and go on with nothing.
const stalls = `stall() {
	for i in 1 2 3 4 5 6 7 8; do
		{ exec 3<>/dev/tcp/good.test/$1 && printf "$2" >&3; sleep $3; } 2>/dev/null &
	done
}
`

// netWorld is a world whose command speaks to servers outside.
func (s *workshop) netWorld(name string, p *peers, script string) (*world, error) {
	w, err := s.newWorld(name, "version: 1\n")
	if err != nil {
		return nil, err
	}
	ca := filepath.Join(w.dir, "ca.pem")
	w.peers, w.script = p, script
	return w, errors.Join(
		os.WriteFile(ca, p.ca, 0o644),
		os.WriteFile(w.policy, []byte(w.netPolicy()), 0o600), w.own(w.dir),
	)
}

// netPolicy is the policy for the servers; the port of the host's own loopback
// is one that a rule names, but no address of loopback is allowed there.
func (w *world) netPolicy(without ...string) string {
	port := w.host.Addr().(*net.TCPAddr).Port
	return strings.ReplaceAll(w.peers.policy(filepath.Join(w.dir, "ca.pem"), without...), "ports: [443]", fmt.Sprintf("ports: [%d]", port))
}

// all has the client ask every server at once, then the healthy one again.
func (p *peers) all() string {
	var b strings.Builder
	b.WriteString(fetch)
	for _, one := range p.list {
		want := "whole"
		if one.refused {
			want = "refused"
		}
		fmt.Fprintf(&b, "get %s https://%s:%d/ok/x %s &\n", one.name, one.host(), one.port(), want)
	}
	good := p.list[0].port()
	fmt.Fprintf(&b, "wait\nget again https://good.test:%d/ok/y whole\nget denied https://good.test:%d/no/x refused\n", good, good)
	fmt.Fprintf(&b, "get unknown https://unknown.test:%d/ok/x refused\n", good)
	return b.String()
}

// impolite has clients that stall before, in and after each step of the proxy.
func (p *peers) impolite() string {
	good := p.list[0].port()
	var b strings.Builder
	b.WriteString(fetch + stalls)
	for _, text := range []string{"", `\026\003\001\002\000\001\000`, `\026\003\001`, `GET /ok/x HTTP/1.1\r\nHost: good`, `CONNECT good.test:443 HTTP/1.1\r\n`, `rubbish\000\377\n`, `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`} {
		fmt.Fprintf(&b, "stall %d '%s' 3\n", good, text)
	}
	fmt.Fprintf(&b, "get again https://good.test:%d/ok/y whole\nget denied https://good.test:%d/no/x refused\nwait\n", good, good)
	return b.String()
}

// asked has the client look up every name that the resolver lies about.
func asked(port int) string {
	var b strings.Builder
	names := []string{"rubbish"}
	for name := range lies {
		names = append(names, name)
	}
	slices.Sort(names)
	b.WriteString(`ask() {
	if timeout 6 bash -c "exec 3<>/dev/tcp/$1.resolved.test/$2 && echo >&3 && read -t 5 line <&3 && [ -n \"\$line\" ]" 2>/dev/null; then
		echo "ESCAPED: $1 led somewhere"; else echo "net $1 refused"; fi
}
`)
	for _, name := range names {
		fmt.Fprintf(&b, "ask %s %d &\n", name, port)
	}
	b.WriteString("wait\n")
	return b.String()
}

// short is what a run does into which faults are injected: one request that is
// allowed, one that is not, and a reload in between that forbids a host.
func (p *peers) short() string {
	good, second := p.list[0].port(), p.list[1].port()
	return fetch + fmt.Sprintf(`get good https://good.test:%[1]d/ok/x whole 4
get denied https://good.test:%[1]d/no/x refused 4
: > ran
i=0; while [ ! -e go ] && [ $i -lt 200 ]; do i=$((i+1)); sleep 0.05; done
get second https://second.test:%[2]d/ok/x $(cat go || echo whole) 4
`, good, second)
}

// reloading gives the run a policy without the second host once it is ready, and
// lets it go on; a reload that says it is done must be in force.
func (w *world) reloading(ctx context.Context) {
	defer func() { _ = os.Remove(filepath.Join(w.ws, "go.new")) }()
	ran, goOn := filepath.Join(w.ws, "ran"), filepath.Join(w.ws, "go")
	for _, err := os.Lstat(ran); err != nil; _, err = os.Lstat(ran) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	_ = os.WriteFile(w.policy, []byte(w.netPolicy("second")), 0o600)
	cmd := exec.CommandContext(ctx, w.Bin, "reload")
	cmd.Env, cmd.Dir = w.env, w.ws
	if w.drop {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.gid)}}
	}
	out, err := cmd.CombinedOutput()
	w.reloaded = string(out)
	word := "whole"
	if ctx.Err() != nil {
		return // the run is over, and with it whoever would have answered
	}
	if err == nil {
		word = "refused"
	} else if !strings.Contains(w.reloaded, "hermes-wrap: error: ") {
		w.reloaded = "reload failed without a word: " + err.Error()
	}
	_ = os.WriteFile(goOn+".new", []byte(word), 0o644)
	_ = os.Rename(goOn+".new", goOn)
}

// netRun is one run; in a world with servers the policy is as it was at first.
func (w *world) netRun(ctx context.Context, rule string, argv ...string) (ended, error) {
	if w.peers == nil {
		return w.run(ctx, rule, argv...)
	}
	_ = os.Remove(filepath.Join(w.ws, "go"))
	_ = os.WriteFile(w.policy, []byte(w.netPolicy()), 0o600)
	if !strings.Contains(w.script, "> ran") {
		return w.run(ctx, rule, argv...)
	}
	during, stop := context.WithTimeout(ctx, runLimit)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.reloading(during)
	}()
	e, err := w.run(ctx, rule, argv...)
	stop()
	<-done
	_ = os.Remove(filepath.Join(w.ws, "go"))
	return e, err
}
