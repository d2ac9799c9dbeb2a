package main

import (
	"cmp"
	"fmt"
)

const (
	trafficRounds = 3
	trafficBytes  = 1 << 30
	trafficConns  = 2000
	httpsSeconds  = 3
)

// measureBytes compares passed-through bytes and connections with a relay
// that does nothing but io.Copy, as a process of its own like the proxy.
func measureBytes(s *shop) ([]row, error) {
	n, err := s.openNetwork()
	if err != nil {
		return nil, err
	}
	defer n.close()
	direct := n.target("raw", false)[0]
	relay, err := s.start(nil, s.self, "probe", "relay", direct)
	if err != nil {
		return nil, err
	}
	defer relay.stop()
	via, err := relay.line()
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, k := range []struct {
		what, mode string
		count      int
		unit       string
		scale      float64
	}{
		{"bytes passed through, up", "up", trafficBytes, "GB/s", 1e9},
		{"bytes passed through, down", "down", trafficBytes, "GB/s", 1e9},
		{"connections passed through", "connect", trafficConns, "a second", 1},
	} {
		var bare, in, straight series
		for range trafficRounds {
			for _, side := range []struct {
				argv []string
				into *series
			}{
				{[]string{s.self, "probe", k.mode, direct, fmt.Sprint(k.count)}, &straight},
				{[]string{s.self, "probe", k.mode, via, fmt.Sprint(k.count)}, &bare},
				{s.inside(n.policy, s.self, "probe", k.mode, n.target("raw", true)[0], fmt.Sprint(k.count)), &in},
			} {
				got, err := s.numbers(side.argv...)
				if err != nil {
					return rows, err
				}
				*side.into = append(*side.into, float64(k.count)/got[0]/k.scale)
			}
		}
		ratio := in.median() / bare.median()
		rows = append(rows, judged(k.what, "0.80 of a bare relay",
			fmt.Sprintf("%.2f of it (%.4g %s against %.4g; direct %.4g)", ratio, in.median(), k.unit, bare.median(), straight.median()), ratio >= 0.8))
	}
	return rows, nil
}

// measureHTTPS compares inspected HTTPS with the same client on the same
// server directly.
func measureHTTPS(s *shop) ([]row, error) {
	n, err := s.openNetwork()
	if err != nil {
		return nil, err
	}
	defer n.close()
	var rows []row
	for _, k := range []struct {
		what, mode string
		limit      float64
	}{
		{"inspected HTTPS, 64 keep-alive clients", "keep", 0.36},
		{"inspected HTTPS, a new connection each request", "new", 0.7},
	} {
		var bare, in, cpu series
		for range trafficRounds {
			b, err := n.load(s, crowd{64, k.mode}, way{})
			if err != nil {
				return rows, err
			}
			i, err := n.load(s, crowd{64, k.mode}, way{inside: true})
			if err != nil {
				return rows, err
			}
			bare, in, cpu = append(bare, b.rate), append(in, i.rate), append(cpu, i.cpu)
		}
		ratio := in.median() / bare.median()
		rows = append(rows, judged(k.what, fmt.Sprintf("%.2f of direct", k.limit),
			fmt.Sprintf("%.2f of direct (%.0f against %.0f requests a second)", ratio, in.median(), bare.median()), ratio >= k.limit))
		if k.mode == "keep" {
			rows = append(rows, within("CPU of the proxy for an inspected request", "100 µs", fmt.Sprintf("%.0f µs", cpu.median()*1e6), cpu.median(), 100e-6))
			continue
		}
		rows = append(rows, row{What: "CPU of the proxy for an inspected connection", Figure: fmt.Sprintf("%.0f µs", cpu.median()*1e6)})
	}
	return rows, nil
}

// way is how clients get to the server.
type way struct {
	name       string
	inside     bool   // in a sandbox
	via, ca    string // through a proxy, with its authority
	intercepts bool
}

// load is what a crowd of clients got in one turn.
type load struct {
	rate     float64 // requests a second
	p50, p99 float64 // seconds of a request
	cpu      float64 // CPU seconds of our proxy for a request; 0 outside
	failed   error
}

// load has a crowd make requests for a while.
func (n *network) load(s *shop, who crowd, w way) (l load, err error) {
	via, ca := cmp.Or(w.via, "-"), cmp.Or(w.ca, n.ca)
	argv := append([]string{s.self, "probe", "https", who.mode, fmt.Sprint(who.clients), via}, n.target("https", w.inside)...)
	env := []string{"SSL_CERT_FILE=" + ca}
	if w.inside {
		argv, env = s.inside(n.policy, argv...), nil
	}
	c, err := s.start(env, argv...)
	if err != nil {
		return l, err
	}
	defer c.stop()
	if _, err := c.line(); err != nil {
		return l, fmt.Errorf("start the clients: %w", err)
	}
	var before process
	if w.inside {
		if before, err = proxyOf(c.cmd.Process.Pid); err != nil {
			return l, err
		}
	}
	answer, err := c.ask("go")
	if err != nil {
		return l, fmt.Errorf("run the clients: %w", err)
	}
	var count, seconds float64
	if _, err := fmt.Sscan(answer, &count, &seconds, &l.p50, &l.p99); err != nil {
		return l, fmt.Errorf("run the clients: %s", answer)
	}
	if w.inside {
		after, _ := readProcess(before.pid)
		l.cpu = (after.cpu - before.cpu) / count
	}
	l.rate = count / seconds
	return l, nil
}
