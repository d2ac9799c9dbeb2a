package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// explanation is the plan for people and for programs.
type explanation struct {
	Policy   string                `json:"policy"`
	Digest   string                `json:"digest"`
	Sources  []policy.Source       `json:"sources"`
	Command  []string              `json:"command"`
	Program  string                `json:"program"`
	Cwd      string                `json:"cwd"`
	Layers   []audit.Layer         `json:"layers"`
	Degraded []sandbox.Degradation `json:"degraded,omitempty"`
	Files    []sandbox.Note        `json:"files"`
	Limits   []sandbox.Limit       `json:"limits"`
	Network  []string              `json:"network"`
	Secrets  []string              `json:"credentials,omitempty"` // never their values
	Services []string              `json:"services,omitempty"`
	Env      []string              `json:"env"` // names only
	Dropped  []string              `json:"dropped,omitempty"`
	Warnings []string              `json:"warnings,omitempty"`
}

func explanationOf(p prepared) explanation {
	e := explanation{
		Policy: p.policy.Name, Digest: p.policy.Digest, Sources: p.policy.Sources, Command: p.plan.Argv,
		Program: p.plan.Program, Cwd: p.plan.Cwd, Layers: layersOf(p.plan), Degraded: p.plan.Degraded,
		Files: p.plan.Notes(), Limits: p.plan.Limits.Limits, Network: networkLines(p), Dropped: p.plan.Dropped,
		Warnings: p.plan.Warnings, Secrets: credentialLines(p.policy), Services: serviceLines(p.policy),
	}
	for _, kv := range p.plan.Env {
		name, _, _ := strings.Cut(kv, "=")
		e.Env = append(e.Env, name)
	}
	return e
}

// explain prints the plan, rule by rule, with what enforces it.
func explain(w io.Writer, p prepared, asJSON bool) error {
	e := explanationOf(p)
	if asJSON {
		return printJSON(e)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "policy %s, digest %.12s\n", e.Policy, e.Digest)
	for _, s := range e.Sources {
		fmt.Fprintf(&b, "  from %s (%.12s)\n", s.Name, s.Digest)
	}
	fmt.Fprintf(&b, "command %s\n  program %s\n  in %s\n", strings.Join(e.Command, " "), e.Program, e.Cwd)
	b.WriteString("\nlayers\n")
	for _, l := range e.Layers {
		state := "enforced"
		if !l.Enforced {
			state = "MISSING"
		}
		fmt.Fprintf(&b, "  %-10s %-9s %s\n", l.Name, state, l.Mechanism)
	}
	b.WriteString("\nfiles\n")
	for _, n := range e.Files {
		fmt.Fprintf(&b, "  %-10s %-44s %s\n%57s%s\n", n.What, n.Path, n.Mechanism, "", from(n.Rule, n.Pos))
	}
	b.WriteString("\nnetwork\n")
	for _, line := range e.Network {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	if len(e.Secrets) > 0 {
		b.WriteString("\ncredentials\n")
	}
	for _, line := range e.Secrets {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	if len(e.Services) > 0 {
		b.WriteString("\nservices\n")
	}
	for _, line := range e.Services {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	b.WriteString("\nlimits\n")
	for _, l := range e.Limits {
		fmt.Fprintf(&b, "  %-12s %-14d %s\n", l.Name, l.Value, l.Mechanism)
	}
	fmt.Fprintf(&b, "\nenvironment\n  passed or set: %s\n  left out: %s\n", strings.Join(e.Env, " "), strings.Join(e.Dropped, " "))
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, audit.Escape(strings.TrimRight(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

func from(rule string, pos policy.Pos) string {
	if pos == (policy.Pos{}) {
		return "by " + rule
	}
	return fmt.Sprintf("by %s (%s)", rule, pos)
}

// layersOf says of each layer what holds it, from the plan.
func layersOf(p sandbox.Plan) (out []audit.Layer) {
	for _, l := range p.Layers() {
		out = append(out, audit.Layer{Name: string(l.Name), Enforced: l.Enforced, Mechanism: l.Mechanism})
	}
	return out
}

// ruleText says what of the host a rule is about.
func ruleText(r policy.Rule) string {
	text := ""
	if r.Protocol != "" && r.Protocol != policy.ProtocolHTTP {
		text += ", " + string(r.Protocol)
	}
	if len(r.Paths) > 0 {
		text += " at " + strings.Join(r.Paths, " ")
	}
	if r.Protocol.InHTTP() && r.Protocol != policy.ProtocolGRPC {
		text += ", each message judged"
	}
	if r.Access != "" {
		text += ", " + r.Access
	}
	switch {
	case len(r.Allow) > 0:
		text += fmt.Sprintf(", what %d clause(s) allow", len(r.Allow))
	case r.AllowSet:
		text += ", nothing is allowed"
	}
	if len(r.Deny) > 0 {
		text += fmt.Sprintf(", less what %d clause(s) deny", len(r.Deny))
	}
	if r.Credential != "" {
		text += fmt.Sprintf(", with credential %q", r.Credential)
	}
	return text
}

// routeLines are the rules that routes to models stand for.
func routeLines(routes []policy.Route) (out []string) {
	for i, r := range routes {
		port := cmp.Or(r.Port, map[bool]int{false: 443, true: 80}[r.Plain])
		models := "any model"
		if len(r.Models) > 0 {
			models = strings.Join(r.Models, " ")
		}
		text := ""
		if r.Credential != "" {
			text = fmt.Sprintf(", with credential %q", r.Credential)
		}
		out = append(out, fmt.Sprintf("allow  %s: %s, ports [%d], inference alone (%s), %s%s (proxy; %s)",
			cmp.Or(r.Name, fmt.Sprintf("inference.routes[%d]", i)), r.Host, port, r.Provider, models, text, r.Pos))
	}
	if len(routes) > 0 {
		out = append(out, fmt.Sprintf("allow  inference.routes: %s, ports [80 443], inference by any of the routes (proxy)", netpolicy.InnerInference))
	}
	return out
}

func networkLines(p prepared) (out []string) {
	for _, r := range p.policy.Network.Rules {
		hosts := r.Host
		for _, h := range r.Hosts {
			hosts = strings.TrimSpace(hosts + " " + h.Text)
		}
		if r.Any {
			hosts = "any host"
		}
		ports := r.Ports
		if len(ports) == 0 {
			ports = []int{80, 443}
		}
		out = append(out, fmt.Sprintf("allow  %s: %s, ports %v%s (proxy; %s)", r.Name, hosts, ports, ruleText(r), r.Pos))
	}
	out = append(out, routeLines(p.policy.Inference.Routes)...)
	out = append(out, wayLines(p.policy.Network)...)
	out = append(out, publishLines(p.policy.Network.Publish)...)
	out = append(out, dockerLines(p.policy.Network.Docker)...)
	for _, d := range p.policy.Network.Deny {
		out = append(out, fmt.Sprintf("deny   %s (proxy; %s)", d.Host, d.Pos))
	}
	if s := p.plan.NetworkNote(); s != "" {
		return append(out, "deny   everything else: "+s)
	}
	return append(out, "deny   everything else: the network namespace has only lo, and all of it leads to the proxy")
}
