package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// complete fills in what no layer said. A default never grants.
func (p Policy) complete(vars map[string]string) Policy {
	p.Version = Version
	setDefault(&p.Workspace.Access, AccessNone)
	setDefault(&p.Filesystem.Home, "none")
	setDefault(&p.Filesystem.HomeSize, 512<<20)
	setDefault(&p.Filesystem.TmpSize, 256<<20)
	setDefault(&p.Filesystem.ShmSize, 64<<20)
	setDefault(&p.Filesystem.Inodes, 1_000_000)
	setDefault(&p.State, "ephemeral")
	setDefault(&p.Process.Uid, "self")
	setDefault(&p.Process.Hostname, "sandbox")
	if _, written := p.Where["process.stop_grace"]; !written {
		p.Process.StopGrace = Duration(10 * time.Second)
	}
	if state := vars["XDG_STATE_HOME"]; p.Audit.File.Abs == "" && state != "" {
		p.Audit.File = Path{Text: "${XDG_STATE_HOME}/hermes-wrap/audit.jsonl", Abs: filepath.Join(state, "hermes-wrap/audit.jsonl")}
	}
	// Written out, so that a floor or a project's file with a larger number does
	// not raise it.
	setDefault(&p.Network.Upstream.ConnectionsPerHost, 128)
	p.Network.Rules = slices.Clone(p.Network.Rules)
	for i := range p.Network.Rules {
		r := &p.Network.Rules[i]
		setDefault(&r.Protocol, ProtocolHTTP)
		if len(r.Ports) == 0 && r.Protocol != ProtocolTCP {
			r.Ports = []int{80, 443}
		}
		if len(r.Paths) == 0 && r.Protocol == ProtocolGraphQL {
			r.Paths = []string{"/graphql"}
		}
	}
	p.Inference.Routes = slices.Clone(p.Inference.Routes)
	for i := range p.Inference.Routes {
		p.Inference.Routes[i].complete(i)
	}
	return p
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (r *Route) complete(i int) {
	setDefault(&r.Name, fmt.Sprintf("inference.routes[%d]", i))
	switch {
	case r.Port == 0 && r.Plain:
		r.Port = 80
	case r.Port == 0:
		r.Port = 443
	}
	if r.Provider == "openai-compatible" || r.Provider == "local" {
		setDefault(&r.Base, "/v1")
	}
}
