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
	return append(rows, within(fmt.Sprintf("memory of %d sandboxes against %d", many, few), "linear: no more for each",
		fmt.Sprintf("%.1f MiB each, against %.1f", b/1024/many, a/1024/few), b/many, 1.1*a/few)), nil
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

// held is how many connections are kept open, one after the other.
var held = []int{0, 256, 1000}

// measureConnections weighs the proxy.
func measureConnections(s *shop) ([]row, error) {
	n, err := s.openNetwork()
	if err != nil {
		return nil, err
	}
	defer n.close()
	var rows []row
	for _, kind := range []struct{ what, role, budget string }{
		{"memory of an idle connection, bytes passed", "raw", "10 KiB"},
		{"memory of an idle connection, inspected HTTPS", "https", "10 KiB"},
	} {
		at, err := n.weighConnections(s, kind.role)
		if err != nil {
			rows = append(rows, row{What: kind.what, Budget: kind.budget, Figure: "not measured: " + err.Error()})
			continue
		}
		// The first connections bring what all of them share.
		last := len(held) - 1
		kib := (at[last] - at[last-1]) / float64(held[last]-held[last-1])
		figure := fmt.Sprintf("%.1f KiB in the proxy", kib)
		for i, count := range held {
			figure += fmt.Sprintf("%s %.1f MiB with %d", map[bool]string{true: ";", false: ","}[i == 0], at[i]/1024, count)
		}
		rows = append(rows, within(kind.what, kind.budget, figure, kib, 10))
	}
	return rows, nil
}

// weighConnections tells what the proxy takes with so many idle connections.
func (n *network) weighConnections(s *shop, role string) (at []float64, err error) {
	c, err := s.start(nil, s.inside(n.policy, append([]string{s.self, "probe", "hold", role}, n.target(role, true)...)...)...)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	if _, err := c.line(); err != nil {
		return nil, err
	}
	proxy, err := proxyOf(c.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	open := 0
	for _, count := range held {
		if _, err := c.ask(fmt.Sprint(count - open)); err != nil {
			return nil, err
		}
		open = count
		time.Sleep(settle)
		kib, _ := s.memoryOf(proxy.pid)
		at = append(at, kib)
	}
	return at, nil
}
