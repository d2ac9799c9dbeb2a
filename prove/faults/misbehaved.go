package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// crowdLimit is how long a run may take whose peers all misbehave at once: each
// client gives up after 6 s, and what the proxy still waits for must not hold the
// end of the run.
const crowdLimit = 25 * time.Second

// misbehaved runs a client against peers that misbehave at each step, all at once.
func (t *trial) misbehaved(ctx context.Context, p *peers) error {
	var results []result
	for _, one := range []struct{ name, step, script string }{
		{"servers", "", p.all()},
		{"clients", "handshake", p.impolite()},
	} {
		e, _, err := t.crowd(ctx, p, one.name, one.script, "")
		if err != nil {
			return err
		}
		if one.name == "clients" {
			results = append(results, said(e, "again", "handshake", "clients that stall before, in and after the handshake and the head"), said(e, "denied", "head", "a request that no rule allows, beside them"))
			continue
		}
		for _, peer := range p.list {
			results = append(results, said(e, peer.name, peer.step, "the server "+strings.TrimPrefix(peer.what, "the server ")))
		}
		results = append(results, said(e, "again", "answer", "a healthy server, after all of them"))
	}
	if os.Getuid() == 0 {
		more, err := t.resolved(ctx, p)
		if err != nil {
			return err
		}
		results = append(results, more...)
	}
	t.add("Proxy: peers that misbehave", len(results), results)
	return nil
}

// crowd runs one such script.
func (t *trial) crowd(ctx context.Context, p *peers, name, script, resolv string) (ended, *world, error) {
	w, err := t.netWorld(name, p, script)
	if err != nil {
		return ended{}, nil, err
	}
	defer w.close()
	if resolv == "" {
		e, err := w.netRun(ctx, never)
		return e, w, err
	}
	l, path, err := newLiar(w.dir)
	if err != nil {
		return ended{}, nil, err
	}
	defer l.close()
	w.script, w.asRoot = asked(w.host.Addr().(*net.TCPAddr).Port), true
	e, err := w.netRun(ctx, never, w.line(surrounding{script: "mount --bind " + path + " /etc/resolv.conf"})...)
	return e, w, err
}

// resolved asks a resolver that lies.
func (t *trial) resolved(ctx context.Context, p *peers) (results []result, err error) {
	e, _, err := t.crowd(ctx, p, "resolver", "", "lies")
	if err != nil {
		return nil, err
	}
	results = append(results, said(e, "rubbish", "resolve", "the resolver answers with rubbish"))
	for name := range lies {
		results = append(results, said(e, name, "resolve", "the resolver: "+name))
	}
	return results, nil
}

// said is what the client inside said of one peer.
func said(e ended, name, step, what string) result {
	r := result{fault: fault{role: "peer", call: name, kind: what}, verdict: verdict{full: true, step: step}, at: step, err: e.err}
	line := ""
	for one := range strings.Lines(e.out) {
		if strings.HasPrefix(one, "net "+name+" ") {
			line = strings.TrimSpace(strings.TrimPrefix(one, "net "+name+" "))
		}
	}
	healthy := name == "good" || name == "second" || name == "again"
	switch {
	case strings.Contains(e.out, "ESCAPED"):
		r.wrong = "escaped: " + lineWith(e.out, "ESCAPED")
	case e.exit != probeExit || e.hung || len(e.left) > 0:
		r.wrong = fmt.Sprintf("the run ended with %d (hung %v, left %v): %s", e.exit, e.hung, e.left, last(strings.Split(strings.TrimSpace(e.err), "\n")))
	case e.took > crowdLimit:
		r.wrong = fmt.Sprintf("the run took %v", e.took)
	case line == "":
		r.wrong = "the client said nothing of it"
	case healthy != (line == "whole"):
		r.wrong = "the client got: " + line
	case !healthy:
		r.full, r.message = false, line
	}
	return r
}
