package policy

import (
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
	setDefault(&p.Process.Uid, "self")
	setDefault(&p.Process.Hostname, "sandbox")
	if _, written := p.Where["process.stop_grace"]; !written {
		p.Process.StopGrace = Duration(10 * time.Second)
	}
	if state := vars["XDG_STATE_HOME"]; p.Audit.File.Abs == "" && state != "" {
		p.Audit.File = Path{Text: "${XDG_STATE_HOME}/hermes-wrap/audit.jsonl", Abs: filepath.Join(state, "hermes-wrap/audit.jsonl")}
	}
	p.Network.Rules = slices.Clone(p.Network.Rules)
	for i := range p.Network.Rules {
		r := &p.Network.Rules[i]
		setDefault(&r.Protocol, ProtocolHTTP)
		if len(r.Ports) == 0 && r.Protocol == ProtocolHTTP {
			r.Ports = []int{80, 443}
		}
	}
	return p
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
