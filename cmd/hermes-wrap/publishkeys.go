package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// inboundSecret is what the proxy needs to serve an entry of network.publish: the
// certificate with its key, and of the token no more than its SHA-256.
type inboundSecret struct {
	Cert  []byte `json:"cert,omitempty"`
	Key   []byte `json:"key,omitempty"`
	Token []byte `json:"token,omitempty"`
}

const makeKey = "openssl rand -hex 32"

// requiredKeys refuses to publish where a variable that must hold a real key in
// the command's environment does not.
func requiredKeys(p policy.Policy, plan sandbox.Plan, values map[string]credential.Values) error {
	var ps policy.Problems
	for _, e := range p.Network.Publish {
		if e.RequireKey == "" {
			continue
		}
		what := policy.CheckKey(variable(plan.Env, e.RequireKey))
		hint := fmt.Sprintf("make one (%s), set it outside, and list %s in env.allow and env.secret", makeKey, e.RequireKey)
		if c := exposedAs(e.RequireKey, p, values); c != "" {
			what = fmt.Sprintf("holds the placeholder of credential %q, which stands for a key elsewhere and is none here", c)
			hint = fmt.Sprintf("have the credential show in another variable, and give the service a key of its own (%s)", makeKey)
		}
		if what != "" {
			ps = append(ps, policy.Problem{
				Pos: e.Pos, Path: "network.publish",
				What: fmt.Sprintf("%q needs a real key in %s, which %s", e.Label(), e.RequireKey, what), Hint: hint,
			})
		}
	}
	if len(ps) > 0 {
		return ps
	}
	return nil
}

// variable gives a variable as getenv(3) does.
func variable(env []string, name string) string {
	i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	if i < 0 {
		return ""
	}
	return env[i][len(name)+1:]
}

// exposedAs names the credential whose placeholder shows in a variable, or "".
func exposedAs(name string, p policy.Policy, values map[string]credential.Values) string {
	for c, v := range values {
		if _, ours := exposed(p.Credentials[c], v.Placeholder)[name]; ours {
			return c
		}
	}
	return ""
}

// tokens reads the bearer tokens of what is published, anew each time.
func (k *keeper) tokens(ctx context.Context, p policy.Policy) (map[string]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]string{}
	var ps policy.Problems
	for _, e := range p.Network.Publish {
		if e.Bearer == nil {
			continue
		}
		token, err := k.reader.Read(ctx, *e.Bearer)
		if err != nil {
			ps = append(ps, policy.Problem{Pos: e.Pos, Path: "network.publish", What: err.Error()})
		} else if what := policy.CheckKey(token); what != "" {
			ps = append(ps, policy.Problem{Pos: e.Pos, Path: "network.publish", What: fmt.Sprintf("the token of %q %s", e.Label(), what), Hint: "make one: " + makeKey})
		}
		out[e.Label()] = token
	}
	if len(ps) > 0 {
		return nil, ps
	}
	return out, nil
}

// takeTokens reads them for a launch, and refuses those that would show inside.
func (l *launch) takeTokens(ctx context.Context) (err error) {
	p, plan := l.prep.policy, l.prep.plan
	if l.tokens, err = l.keeper.tokens(ctx, p); err != nil {
		return err
	}
	for name, token := range l.tokens {
		l.log.Hide(token)
		holds := func(s string) bool { return strings.Contains(s, token) }
		if slices.ContainsFunc(plan.Env, holds) || slices.ContainsFunc(plan.Argv, holds) {
			return fmt.Errorf("the environment or the command would show the token of %q inside: remove it from env", name)
		}
	}
	return nil
}

// readInbound reads the certificates of what is published, and puts the tokens to
// them.
func readInbound(p policy.Policy, tokens map[string]string) (map[string]inboundSecret, error) {
	out := map[string]inboundSecret{}
	for _, e := range p.Network.Publish {
		if !e.Proxied() {
			continue
		}
		var s inboundSecret
		if token, ok := tokens[e.Label()]; ok {
			sum := sha256.Sum256([]byte(token))
			s.Token = sum[:]
		}
		if err := s.readTLS(e.TLS); err != nil {
			return nil, policy.Problem{Pos: e.Pos, Path: "network.publish", What: err.Error()}
		}
		out[e.Label()] = s
	}
	return out, nil
}

func (s *inboundSecret) readTLS(files policy.PublishTLS) (err error) {
	if files.Key.Abs == "" {
		return nil
	}
	if s.Cert, err = os.ReadFile(files.Cert.Abs); err != nil {
		return err
	}
	if s.Key, err = os.ReadFile(files.Key.Abs); err != nil {
		return err
	}
	_, err = tls.X509KeyPair(s.Cert, s.Key)
	return err
}

// warnLooseKeys names keys that others can read.
func (l *launch) warnLooseKeys() {
	for _, e := range l.prep.policy.Network.Publish {
		if st, err := os.Stat(e.TLS.Key.Abs); e.TLS.Key.Abs != "" && err == nil && st.Mode().Perm()&0o004 != 0 {
			l.voice.warn(fmt.Sprintf("every user of this machine can read the key %q: chmod o-r it", e.TLS.Key.Abs))
		}
	}
}

// inboundOf is how the proxy serves what is published.
func inboundOf(entries []policy.Publish, secrets map[string]inboundSecret) (map[string]proxy.Inbound, error) {
	out := map[string]proxy.Inbound{}
	for _, e := range entries {
		if !e.Proxied() {
			continue
		}
		s := secrets[e.Label()]
		ev := inboundEvent(e, audit.Allow, nil, "")
		in := proxy.Inbound{Name: ev.Rule, Pos: ev.Pos, Host: ev.Host, Port: ev.Port}
		if e.Bearer != nil {
			if len(s.Token) != sha256.Size {
				return nil, errors.New("BUG: an entry of network.publish has no token")
			}
			in.Token = (*[sha256.Size]byte)(s.Token)
		}
		if e.TLS.Key.Abs != "" {
			pair, err := tls.X509KeyPair(s.Cert, s.Key)
			if err != nil {
				return nil, fmt.Errorf("read the certificate of %q: %w", e.Label(), err)
			}
			in.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: proxy.InboundProtocols(in.Token != nil)}
		}
		out[e.Label()] = in
	}
	return out, nil
}
