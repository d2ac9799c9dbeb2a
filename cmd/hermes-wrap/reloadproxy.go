package main

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// proxySecrets is what the launcher reads for the proxy, which may open next to
// nothing itself. It travels sealed, at the start and with each order, and is
// written nowhere.
type proxySecrets struct {
	// Files is the content of files that the policy names, by their path.
	Files map[string][]byte `json:"files,omitempty"`
	// Credentials are the secrets that requests get, and what stands for them.
	Credentials map[string]credential.Values `json:"credentials,omitempty"`
	// Inbound is what serves published ports, by the name of their entry.
	Inbound map[string]inboundSecret `json:"inbound,omitempty"`
	// House names the house's proxy.
	House houseSettings `json:"house,omitzero"`
}

// readSecrets reads them for a policy, whose credentials and tokens were read already.
func readSecrets(p policy.Policy, values map[string]credential.Values, tokens map[string]string) (proxySecrets, error) {
	s := proxySecrets{Files: map[string][]byte{}, Credentials: values}
	for _, f := range p.Network.CA {
		b, err := os.ReadFile(f.Abs)
		if err != nil {
			return s, policy.Problem{Pos: f.Pos, Path: "network.ca", What: err.Error()}
		}
		s.Files[f.Abs] = b
	}
	if err := readClientCertificates(p.Network.Upstream, s.Files); err != nil {
		return s, err
	}
	s.House = readHouse(p.Network.Upstream, os.Getenv)
	var err error
	s.Inbound, err = readInbound(p, tokens)
	return s, err
}

// proxyRules turns a policy and its secrets into what the proxy judges by. It
// opens nothing: the proxy calls it at its start and at each reload.
func proxyRules(p policy.Policy, s proxySecrets) (r proxy.Rules, err error) {
	if r.Engine, err = compileNetwork(p); err != nil {
		return r, err
	}
	if r.Inference, err = inference.Compile(p.Inference); err != nil {
		return r, err
	}
	if r.Credentials, err = credential.New(p.Credentials, s.Credentials); err != nil {
		return r, err
	}
	if r.Inbound, err = inboundOf(p.Network.Publish, s.Inbound); err != nil {
		return r, err
	}
	r.Upstream, err = upstreamOf(p.Network.Upstream, s)
	r.Traffic = p.Network.Budget
	return r, err
}

// roots are the host's certificate authorities and those of the policy.
func roots(extra []policy.Path, s proxySecrets) (*x509.CertPool, error) {
	if len(extra) == 0 {
		return nil, nil // the system's, read when they are first needed
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read certificate authorities: %w", err)
	}
	for _, f := range extra {
		if !pool.AppendCertsFromPEM(s.Files[f.Abs]) {
			return nil, fmt.Errorf("%s: network.ca: %q holds no certificate", f.Pos, f.Abs)
		}
	}
	return pool, nil
}

// sealed puts a policy and its secrets where nobody can change them. The caller
// closes the files.
func sealed(p policy.Policy, s proxySecrets) ([]*os.File, error) {
	secrets, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode secrets: %w", err)
	}
	first, err := sandbox.SealedFile("hermes-wrap-policy", p.JSON())
	if err != nil {
		return nil, err
	}
	second, err := sandbox.SealedFile("hermes-wrap-secrets", secrets)
	if err != nil {
		first.Close()
		return nil, err
	}
	return []*os.File{first, second}, nil
}

// readSealed reads what sealed made, and closes the files.
func readSealed(files []*os.File) (p policy.Policy, s proxySecrets, err error) {
	defer closeFiles(files)
	if len(files) != 2 {
		return p, s, errors.New("BUG: a policy and its secrets are two files")
	}
	b, err := sandbox.ReadSealed(files[0])
	if err != nil {
		return p, s, err
	}
	if p, err = policy.FromJSON(b); err != nil {
		return p, s, err
	}
	if b, err = sandbox.ReadSealed(files[1]); err != nil {
		return p, s, err
	}
	if json.Unmarshal(b, &s) != nil { // its text would be that of a secret
		return p, s, errors.New("BUG: the secrets cannot be decoded")
	}
	return p, s, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// obeyLauncher carries orders out until the launcher is gone. It is the only
// one that reads, and what it sends is always read at once.
func obeyLauncher(c *sandbox.Channel, s *proxy.Server) {
	for {
		var o proxyOrder
		files, err := c.Receive(&o)
		if err != nil {
			return
		}
		if o.Inbound != "" || o.Docker {
			takeInbound(s, o, files)
			continue
		}
		e := proxyEvent{Done: o.Seq}
		switch {
		case o.Ping:
			closeFiles(files)
		case o.Stats:
			closeFiles(files)
			now := s.Stats()
			e.Stats = &now
		case o.Audit:
			err = takeRecord(s.Audit, files)
		default:
			e.Closed, err = carryOut(s, files)
		}
		if err != nil {
			e.Error = shortened(err.Error())
		}
		if c.Send(e) != nil {
			return
		}
	}
}

// carryOut swaps the rules. It returns when every later decision is made by the
// new ones.
func carryOut(s *proxy.Server, files []*os.File) (closed int, err error) {
	p, secrets, err := readSealed(files)
	if err != nil {
		return 0, err
	}
	rules, err := proxyRules(p, secrets)
	if err != nil {
		return 0, err
	}
	return s.Reload(rules), nil
}

// shortened keeps a text well within what one packet holds.
func shortened(s string) string {
	const most = 8 << 10
	return s[:min(len(s), most)]
}
