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
	Plan       Plan    `json:"plan"`
	Filter     []byte  `json:"filter"`
	Root       string  `json:"root"` // host path of the private root's mount point
	SigIgnored uint64  `json:"sig_ignored"`
	SigBlocked uint64  `json:"sig_blocked"`
	Terminal   bool    `json:"terminal"`
	Slave      [3]bool `json:"slave"` // which standard streams become the terminal
	// CanaryPort listens on the host's loopback; the self-test must not reach it.
	CanaryPort int `json:"canary_port"`
	// ProxyUser and ProxyToken become part of the proxy's variables in the
	// weaker tier.
	ProxyUser  string `json:"proxy_user,omitempty"`
	ProxyToken string `json:"proxy_token,omitempty"`
}

func (s spec) seal() (*os.File, error) {
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
	return s, nil
}
