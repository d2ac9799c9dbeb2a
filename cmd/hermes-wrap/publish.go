package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// published reads network.publish. Only the host's loopback is listened on: a
// port beyond it would be reachable by the whole network.
func published(p policy.Policy) (out []sandbox.Forward, err error) {
	if err := unfinished(p); err != nil {
		return nil, err
	}
	for _, n := range p.Network.Publish {
		f, err := parsePublish(n.Listen + ":" + n.To)
		if err != nil {
			return nil, policy.Problem{Pos: n.Pos, Path: "network.publish", What: err.Error(), Hint: "publish on 127.0.0.1 and put a reverse proxy of your own before it"}
		}
		out = append(out, f)
	}
	return out, nil
}

func parsePublish(s string) (sandbox.Forward, error) {
	rest, inside, ok := cutLast(s)
	if !ok {
		return sandbox.Forward{}, fmt.Errorf("%q is not [ADDR:]HOST:PORT", s)
	}
	addr, host, ok := cutLast(rest)
	if !ok {
		addr, host = "127.0.0.1", rest
	}
	for _, port := range []string{host, inside} {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return sandbox.Forward{}, fmt.Errorf("%q is not a port", port)
		}
	}
	port, err := strconv.Atoi(inside)
	if err != nil {
		return sandbox.Forward{}, err
	}
	ip := net.ParseIP(strings.Trim(addr, "[]"))
	if ip == nil || !ip.IsLoopback() {
		return sandbox.Forward{}, fmt.Errorf("%q is not a loopback address", addr)
	}
	return sandbox.Forward{Listen: net.JoinHostPort(ip.String(), host), Port: port}, nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}
