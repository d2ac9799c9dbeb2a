package sandbox

import (
	"encoding/json"
	"fmt"
	"os"
)

// spec is what init is told: the plan and what only the running launcher knows.
// It travels in a sealed memfd, never in the environment (which anybody inside
// could read in /proc) and never in a file.
type spec struct {
	Plan      Plan      `json:"plan"`
	Raw       raw       `json:"raw"`
	Filter    []byte    `json:"filter"`
	Root      string    `json:"root"` // host path of the private root's mount point
	Inherited inherited `json:"inherited"`
	Terminal  bool      `json:"terminal"`
	Slave     [3]bool   `json:"slave"` // which standard streams become the terminal
	// CanaryPort listens on the host's loopback; the self-test must not reach it.
	CanaryPort int `json:"canary_port"`
	// Layers are the directories of the layers that are known already.
	Layers []LayerDir `json:"layers,omitempty"`
	// ProxyUser and ProxyToken become part of the proxy's variables in the
	// weaker tier.
	ProxyUser  string `json:"proxy_user,omitempty"`
	ProxyToken string `json:"proxy_token,omitempty"`
}

// raw carries what may hold any byte: JSON would replace what is not UTF-8.
type raw struct {
	Argv, Env    [][]byte
	Program, Cwd []byte
}

func rawOf(p Plan) raw {
	return raw{Argv: toBytes(p.Argv), Env: toBytes(p.Env), Program: []byte(p.Program), Cwd: []byte(p.Cwd)}
}

func (r raw) restore(p *Plan) {
	p.Argv, p.Env = toStrings(r.Argv), toStrings(r.Env)
	p.Program, p.Cwd = string(r.Program), string(r.Cwd)
}

func toBytes(in []string) [][]byte {
	out := make([][]byte, len(in))
	for i, s := range in {
		out[i] = []byte(s)
	}
	return out
}

func toStrings(in [][]byte) []string {
	out := make([]string, len(in))
	for i, b := range in {
		out[i] = string(b)
	}
	return out
}

func (s spec) seal() (*os.File, error) {
	s.Raw = rawOf(s.Plan)
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return SealedFile("hermes-wrap-plan", b)
}

func readSpec(f *os.File) (spec, error) {
	b, err := ReadSealed(f)
	if err != nil {
		return spec{}, fmt.Errorf("read plan: %w", err)
	}
	var s spec
	if err := json.Unmarshal(b, &s); err != nil {
		return spec{}, fmt.Errorf("decode plan: %w", err)
	}
	s.Raw.restore(&s.Plan)
	return s, nil
}
