package main

import (
	"fmt"
	"strings"
	"time"
)

// settle is how long an idle sandbox is left alone before it is weighed: the
// launcher gives back what the launch needed.
const settle = 2 * time.Second

// few and many are how many sandboxes are weighed to see whether their memory
// grows linearly.
const few, many = 5, 50

func measureMemory(s *shop) ([]row, error) {
	var rows []row
	one, parts, err := s.weigh(1)
	if err != nil {
		return nil, err
	}
	rows = append(rows, within("memory beside the command, idle", "35 MiB", fmt.Sprintf("%.1f MiB (%s)", one/1024, parts), one/1024, 35))
	a, _, err := s.weigh(few)
	if err != nil {
		return rows, err
	}
	b, _, err := s.weigh(many)
	if err != nil {
		return rows, err
	}
	rows = append(rows, within(fmt.Sprintf("memory of %d sandboxes against %d", many, few), "linear: no more for each",
		fmt.Sprintf("%.1f MiB each, against %.1f", b/1024/many, a/1024/few), b/many, 1.1*a/few))
	return append(rows, s.connectionRows()...), nil
}

// weigh starts sandboxes and sums what they take beside their commands.
func (s *shop) weigh(n int) (kib float64, parts string, err error) {
	var running []*session
	defer func() {
		for _, c := range running {
			c.stop()
		}
	}()
	for range n {
		c, err := s.start(nil, s.inside(s.policy, "sh", "-c", "echo ready; read x")...)
		if err != nil {
			return 0, "", err
		}
		running = append(running, c)
		if _, err := c.line(); err != nil {
			return 0, "", fmt.Errorf("start a sandbox: %w", err)
		}
	}
	time.Sleep(settle)
	shares := map[string]float64{}
	kind := "PSS"
	for _, c := range running {
		for _, p := range descendants(c.cmd.Process.Pid) {
			role := roleOf(p, c.cmd.Process.Pid)
			if role == "" {
				continue
			}
			size, exact := s.memoryOf(p.pid)
			if !exact {
				kind = "PSS; RSS where PSS may not be read"
			}
			shares[role] += size
			kib += size
		}
	}
	parts = fmt.Sprintf("%s: launcher %.1f, proxy %.1f, init %.1f", kind, shares["launcher"]/1024, shares["proxy"]/1024, shares["init"]/1024)
	return kib, parts, nil
}

// roleOf names what a process of a sandbox is, or "" for the command itself.
func roleOf(p process, launcher int) string {
	switch {
	case p.pid == launcher:
		return "launcher"
	case p.isProxy():
		return "proxy"
	case strings.HasPrefix(p.title, "/proc/self/fd/"):
		return "init"
	}
	return ""
}

// held is how many connections are kept open to weigh one.
const held = 400

func (s *shop) connectionRows() []row {
	n, err := s.openNetwork()
	if err != nil {
		return []row{{What: "memory of a connection", Figure: "not measured: " + err.Error()}}
	}
	defer n.close()
	var rows []row
	for _, kind := range []struct{ what, role, budget string }{
		{"memory of an idle connection, bytes passed", "raw", "10 KiB"},
		{"memory of an idle connection, inspected HTTPS", "https", "10 KiB"},
	} {
		kib, err := n.weighConnection(s, kind.role)
		if err != nil {
			rows = append(rows, row{What: kind.what, Budget: kind.budget, Figure: "not measured: " + err.Error()})
			continue
		}
		rows = append(rows, within(kind.what, kind.budget, fmt.Sprintf("%.1f KiB in the proxy", kib), kib, 10))
	}
	return rows
}

// weighConnection tells what one more idle connection takes in the proxy.
func (n *network) weighConnection(s *shop, role string) (kib float64, err error) {
	c, err := s.start(nil, s.inside(n.policy, append([]string{s.self, "probe", "hold", role}, n.target(role, true)...)...)...)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	if _, err := c.line(); err != nil {
		return 0, err
	}
	proxy, err := proxyOf(c.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	// The first connections bring what all of them share.
	var at [2]float64
	for i := range at {
		if _, err := c.ask(fmt.Sprint(held)); err != nil {
			return 0, err
		}
		time.Sleep(settle)
		at[i], _ = s.memoryOf(proxy.pid)
	}
	return (at[1] - at[0]) / held, nil
}
