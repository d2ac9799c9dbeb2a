package main

import (
	"cmp"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// published is what the launcher listens on for network.publish.
type published struct {
	forwards []sandbox.Forward
	sockets  []*hostSocket
}

// openPublished opens every listener before anything is started: one that is
// taken stops the launch.
func (l *launch) openPublished() (*published, error) {
	out := &published{}
	for _, e := range l.prep.policy.Network.Publish {
		listener, err := out.listen(e)
		if err != nil {
			out.close()
			out.close()
			return nil, &sandbox.StepError{Step: sandbox.StepNetwork, Err: fmt.Errorf("publish %q: %w", e.Label(), err)}
		}
		out.forwards = append(out.forwards, sandbox.Forward{
			Name: e.Label(), Listener: listener, To: e.To, From: e.Prefixes(), Most: e.Most(),
			Denied: func(from net.Addr, reason string) { l.refusedInbound(e, from, reason) },
		})
	}
	return out, nil
}

// publishBacklog is how many connections may wait to be accepted; the kernel
// lowers it to net.core.somaxconn.
const publishBacklog = 4096

func (p *published) listen(e policy.Publish) (net.Listener, error) {
	if !e.Unix() {
		return net.Listen("tcp", e.Address().String())
	}
	s, err := openHostSocket("network.publish", e.Listen)
	if err != nil {
		return nil, err
	}
	p.sockets = append(p.sockets, s)
	if err := unix.Listen(int(s.f.Fd()), publishBacklog); err != nil {
		return nil, err
	}
	return net.FileListener(s.f)
}

// close closes every listener and removes the sockets.
func (p *published) close() {
	for _, f := range p.forwards {
		f.Listener.Close()
	}
	for _, s := range p.sockets {
		s.close()
	}
}

// toProxy has the proxy serve the entries whose clients it is to check.
func (p *published) toProxy(entries []policy.Publish, px *proxyClient) []sandbox.Forward {
	for i, e := range entries {
		if e.Proxied() {
			p.forwards[i].Carry = px.serveInbound(e.Label())
		}
	}
	return p.forwards
}

// inboundEvent is a line of the record about an entry.
func inboundEvent(e policy.Publish, v audit.Verdict, from net.Addr, reason string) audit.Event {
	ev := audit.Event{Kind: audit.KindInbound, Verdict: v, Rule: e.Label(), Pos: e.Pos.String(), Reason: reason}
	if !e.Unix() {
		ev.Host, ev.Port = e.Address().Addr().String(), e.Address().Port()
	}
	if tcp, ok := from.(*net.TCPAddr); ok {
		ev.Addr = tcp.AddrPort().Addr().Unmap().String()
	}
	return ev
}

// refusedInbound records whom the launcher itself refused.
func (l *launch) refusedInbound(e policy.Publish, from net.Addr, reason string) {
	if err := l.log.Write(inboundEvent(e, audit.Deny, from, reason)); err != nil && l.prep.policy.Audit.Required {
		l.proxy.end(err)
	}
}

// recordPublished writes one event for each listener.
func (l *launch) recordPublished() error {
	for _, e := range l.prep.policy.Network.Publish {
		if err := l.write(inboundEvent(e, audit.Allow, nil, publishText(e))); err != nil {
			return err
		}
	}
	return nil
}

// announceExposed names what the whole network can reach, whatever the flags.
func (l *launch) announceExposed() {
	for _, e := range l.prep.policy.Network.Publish {
		if e.Exposed() {
			l.voice.warn("published beyond loopback: " + publishText(e))
		}
	}
}

// publishText says where an entry listens, who can reach it and what is checked.
func publishText(e policy.Publish) string {
	to := "port " + e.To
	if strings.HasPrefix(e.To, "/") {
		to = e.To
	}
	name := ""
	if e.Name != "" {
		name = e.Name + ": "
	}
	on := e.Listen
	if !e.Unix() {
		on = e.Address().String()
	}
	return fmt.Sprintf("%s%s leads to %s inside; reachable by %s; checked: %s; at most %d connections", name, on, to, whoReaches(e), whatIsChecked(e), e.Most())
}

func whoReaches(e policy.Publish) string {
	switch {
	case e.Unix():
		return "this user"
	case len(e.From) > 0:
		return strings.Join(e.From, " ")
	case e.Exposed():
		return "the whole network"
	}
	return "every user of this machine"
}

func whatIsChecked(e policy.Publish) string {
	var all []string
	if len(e.From) > 0 {
		all = append(all, "the address (launcher)")
	}
	if e.TLS.Key.Abs != "" {
		all = append(all, "nothing in the clear (proxy ends TLS)")
	}
	if e.Bearer != nil {
		all = append(all, "a bearer token in each request (proxy)")
	}
	if e.RequireKey != "" {
		all = append(all, fmt.Sprintf("at launch, that %s holds a real key (the service inside asks clients for it)", e.RequireKey))
	}
	return cmp.Or(strings.Join(all, ", "), "nothing")
}

// publishLines are the entries for explain.
func publishLines(entries []policy.Publish) (out []string) {
	for _, e := range entries {
		out = append(out, fmt.Sprintf("in     %s (%s)", publishText(e), e.Pos))
	}
	return out
}
