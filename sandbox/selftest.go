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
	// The mode of this file allows it, so only Landlock stands in the way.
	if p.Abi > 0 && !p.UserNS && !p.misses(policy.LayerLandlock) {
		list = append(list, probe{kind: probeWrite, path: "/proc/self/comm", what: "writing a file that Landlock does not grant"})
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
