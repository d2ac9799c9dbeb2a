package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// wayLines say how what is allowed leaves, and how much of it.
func wayLines(n policy.Network) (out []string) {
	switch n.Upstream.Proxy {
	case "":
	case "env":
		out = append(out, "by     the proxy that HTTPS_PROXY and HTTP_PROXY of the launcher name, but for NO_PROXY (network.upstream.proxy)")
	default:
		out = append(out, fmt.Sprintf("by     the proxy %s (network.upstream.proxy)", n.Upstream.Proxy))
	}
	for _, c := range n.Upstream.Certificates {
		out = append(out, fmt.Sprintf("with   client certificate %s for %s (proxy; %s)", c.Cert.Abs, names(c.Hosts), c.Pos))
	}
	if b := n.Budget.BytesOut; b > 0 {
		out = append(out, fmt.Sprintf("at most %d bytes sent in the run (proxy; network.budget.bytes_out)", b))
	}
	if b := n.Budget.Hosts; b > 0 {
		out = append(out, fmt.Sprintf("at most %d different hosts in the run (proxy; network.budget.hosts)", b))
	}
	return out
}

func names(ns []policy.Name) string {
	var all []string
	for _, n := range ns {
		all = append(all, n.Text)
	}
	return strings.Join(all, " ")
}

// credentialLines name each secret, where it is read and where it goes; never
// what it is, nor the arguments of a command, which could be one.
func credentialLines(p policy.Policy) (out []string) {
	for _, name := range sortedNames(p.Credentials) {
		c := p.Credentials[name]
		inside := "nothing of it"
		if c.Expose.Env != "" {
			inside = "a placeholder in " + c.Expose.Env
		}
		attach := c.Attach
		if c.OAuth != nil {
			attach += ", with access tokens of " + c.OAuth.TokenURL
		}
		out = append(out, fmt.Sprintf("%s: from %s, attached as %s for %s; inside: %s (proxy; %s)", name, sourceText(c.Source), attach, names(c.Hosts), inside, c.Pos))
	}
	return out
}

func sortedNames(m map[string]policy.Credential) []string {
	var all []string
	for name := range m {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func sourceText(s policy.CredentialSource) string {
	switch {
	case s.Env != "":
		return "the launcher's variable " + s.Env
	case s.File.Abs != "":
		return "the file " + s.File.Abs
	case len(s.Command) > 0:
		return "the command " + s.Command[0]
	case s.Keyring != "":
		return "the keyring, " + s.Keyring
	case s.Systemd != "":
		return "systemd's credential " + s.Systemd
	}
	return "nowhere"
}
