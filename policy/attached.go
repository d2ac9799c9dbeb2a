package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// credentials checks what rules, routes and credentials say about each other.
func (j *judging) credentials() {
	used := map[string]bool{}
	for _, r := range j.policy.Network.Rules {
		if r.Credential == "" {
			continue
		}
		used[r.Credential] = true
		j.attached("network.rules", fmt.Sprintf("the rule %q", r.Name), r.Pos, r.Credential, r.hosts(), r.Protocol)
	}
	for _, r := range j.policy.Inference.Routes {
		if r.Credential == "" {
			continue
		}
		used[r.Credential] = true
		j.attached("inference.routes", fmt.Sprintf("the route %q", r.Name), r.Pos, r.Credential, []string{r.Host}, "inference")
	}
	for _, name := range sortedKeys(j.policy.Credentials) {
		c := j.policy.Credentials[name]
		if !used[name] {
			j.refuse(c.Pos, "credentials."+name, "no rule and no route uses it", fmt.Sprintf("write credential: %s where it is to be attached, or remove it", name))
		}
	}
	j.exposed()
}

// attached checks one use of a credential.
func (j *judging) attached(path, who string, pos Pos, name string, hosts []string, p Protocol) {
	c, ok := j.policy.Credentials[name]
	if !ok {
		hint := "write it in credentials"
		if near := nearest(name, sortedKeys(j.policy.Credentials)); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		j.refuse(pos, path, fmt.Sprintf("%s names the credential %q, which does not exist", who, name), hint)
		return
	}
	for _, h := range hosts {
		if !slices.ContainsFunc(c.Hosts, func(n Name) bool { return coversHost(n.Text, h) }) {
			if h == "" {
				h = "every host"
			}
			j.refuse(pos, path, fmt.Sprintf("%s is for %s, to which the credential %q is not bound", who, h, name),
				fmt.Sprintf("the credential's hosts are at %v", j.policy.Credentials[name].Pos))
		}
	}
	if (c.Attach == "json" || c.Attach == "sigv4") && p != "" && p != ProtocolHTTP {
		j.refuse(pos, path, fmt.Sprintf("%s cannot have a credential with attach: %s", who, c.Attach), "only rules with protocol: http can")
	}
}

// exposed wants one meaning for each variable, and no secret in the environment.
func (j *judging) exposed() {
	env := j.policy.Env
	first := map[string]string{}
	for _, name := range sortedKeys(j.policy.Credentials) {
		c, path := j.policy.Credentials[name], "credentials."+name
		for _, v := range c.variables() {
			if other, taken := first[v]; taken {
				j.refuse(c.Pos, path, fmt.Sprintf("the variable %s is exposed by the credential %q too", v, other), "give each its own variable")
			}
			if _, taken := env.Set[v]; taken {
				j.refuse(c.Pos, path, fmt.Sprintf("the variable %s is set by env.set too", v), "remove one of the two")
			}
			first[v] = name
		}
		sources := []CredentialSource{c.Source}
		if c.OAuth != nil && c.OAuth.ClientSecret != nil {
			sources = append(sources, *c.OAuth.ClientSecret)
		}
		for i, s := range sources {
			if s.Env == "" || i == 0 && slices.Contains(c.variables(), s.Env) {
				continue // the placeholder takes its place
			}
			if slices.ContainsFunc(env.Allow, func(n Name) bool { return coversName(n.Text, s.Env) }) {
				j.refuse(c.Pos, path, fmt.Sprintf("env.allow lets the secret itself in: %s", s.Env), fmt.Sprintf("remove it from env.allow, or write expose: {env: %s}", s.Env))
			}
		}
	}
}

// variables lists where the placeholder shows.
func (c Credential) variables() []string {
	switch v := c.Expose.Env; {
	case v == "":
		return nil
	case c.Attach == "sigv4":
		v = strings.TrimSuffix(v, "_ACCESS_KEY_ID")
		return []string{v + "_ACCESS_KEY_ID", v + "_SECRET_ACCESS_KEY", v + "_SESSION_TOKEN"}
	default:
		return []string{v}
	}
}

// outside keeps what only the launcher and the proxy may read, or what they act
// on, out of reach: secrets outside of everything that is visible inside, and
// what the proxy trusts outside of everything that is writable.
func (j *judging) outside() {
	p := j.policy
	for _, name := range sortedKeys(p.Credentials) {
		c, path := p.Credentials[name], "credentials."+name
		j.sourceOutside(path+".source", c.Source, c.Pos)
		if c.OAuth != nil && c.OAuth.ClientSecret != nil {
			j.sourceOutside(path+".oauth.client_secret", *c.OAuth.ClientSecret, c.Pos)
		}
	}
	for i, c := range p.Network.Upstream.Certificates {
		path := fmt.Sprintf("network.upstream.certificates[%d]", i)
		j.hidden(path+".key", c.Key)
		j.unwritable(path+".cert", c.Cert)
	}
	for _, ca := range p.Network.CA {
		j.unwritable("network.ca", ca)
	}
	j.hidden("metrics.socket", p.Metrics.Socket)
	j.hidden("supervise.log.file", p.Supervise.Log.File)
}

func (j *judging) sourceOutside(path string, s CredentialSource, pos Pos) {
	for key, file := range map[string]Path{".file": s.File, ".dotenv": s.Dotenv} {
		if !j.withheld(file) {
			j.hidden(path+key, file)
		}
	}
	for _, word := range s.Command {
		if filepath.IsAbs(word) {
			j.unwritable(path+".command", Path{Text: word, Abs: filepath.Clean(word), Pos: pos})
		}
	}
}

// withheld tells whether the policy hides a file, by its literal and its
// resolved name.
func (j *judging) withheld(file Path) bool {
	real := resolve(file.Abs)
	for _, h := range j.policy.Filesystem.Hide {
		if g := j.place(h); g.holds(file.Abs) && g.holds(real) {
			return true
		}
	}
	return false
}

// hidden refuses a file that lies below anything that is visible inside.
func (j *judging) hidden(path string, file Path) {
	j.apart(path, file, j.policy.Granted(), "visible inside", "keep it elsewhere")
}

// unwritable refuses a file that the agent could change.
func (j *judging) unwritable(path string, file Path) {
	writable := append([]Path{}, j.policy.Filesystem.Write...)
	if j.policy.Workspace.Access == AccessWrite {
		writable = append(writable, j.policy.Workspace.Path)
	}
	j.apart(path, file, writable, "writable inside", "keep it where the agent cannot change it")
}

func (j *judging) apart(path string, file Path, from []Path, what, hint string) {
	if file.Abs == "" {
		return
	}
	real := resolve(file.Abs)
	for _, p := range from {
		if g := j.place(p); g.holds(file.Abs) || g.holds(real) {
			pos := file.Pos
			if pos == (Pos{}) {
				pos = g.Pos
			}
			j.refuse(pos, path, fmt.Sprintf("%q lies under %q, which is %s", file.Abs, g.Text, what), strings.TrimSpace(hint+": "+path))
			return
		}
	}
}
