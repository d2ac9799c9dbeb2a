package sandbox

import (
	"fmt"
	"slices"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// probes lists what the confined process tries before it becomes the agent,
// each aimed at one layer; one that succeeds stops the launch.
func (p Plan) probes(canaryPort int) []probe {
	list := []probe{{kind: probeCaps, what: "holding a capability"}}
	for _, path := range p.Hidden {
		list = append(list, probe{kind: probeRead, path: path, what: fmt.Sprintf("reading %q of the host", path)})
	}
	if canaryPort > 0 {
		list = append(list, probe{kind: probeConnect, port: canaryPort, what: "connecting to the host's loopback"})
	}
	// Its mode allows it and nothing covers it: only Landlock stands in the way.
	switch {
	case p.Abi == 0 || p.misses(policy.LayerLandlock):
	case p.Weak != nil:
		list = append(list, probe{kind: probeWrite, path: "/proc/self/comm", what: "writing a file that Landlock does not grant"})
	default:
		list = append(list, probe{kind: probeRead, path: landlockProbe, what: "reading a file that Landlock does not grant"})
	}
	if p.misses(policy.LayerSeccomp) {
		return list
	}
	if !p.UserNS {
		list = append(list, probe{kind: probeUserNS, what: "creating a user namespace"})
	}
	if !p.Filter.allows("io_uring_setup") {
		list = append(list, probe{kind: probeIOUring, what: "setting up io_uring"})
	}
	return list
}

func (p Plan) misses(l policy.Layer) bool {
	return slices.ContainsFunc(p.Degraded, func(d Degradation) bool { return d.Layer == l })
}
