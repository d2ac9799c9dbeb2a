package profiles_test

import (
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/inference"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/profiles"
)

// own is what fragments want of the user's environment.
var own = map[string]string{
	"AZURE_OPENAI_ENDPOINT": "https://Example.openai.azure.com/", "AWS_REGION": "eu-central-1",
	"EMAIL_IMAP_HOST": "imap.example.org", "EMAIL_SMTP_HOST": "smtp.example.org",
	"MATRIX_HOMESERVER": "https://matrix.example.org", "TERMINAL_SSH_HOST": "ssh.example.org",
}

func options(t *testing.T, policyText string, fragments ...string) policy.Options {
	t.Helper()
	home := t.TempDir()
	return policy.Options{
		Arg: "p", Given: true, Cwd: t.TempDir(), Home: home, PasswdHome: home, SearchDirs: []string{}, Uid: os.Getuid(),
		Builtin: func(name string) ([]byte, bool) {
			if name == "p" {
				return []byte(policyText), true
			}
			return profiles.Lookup(name)
		},
		Fragment: func(name string) ([]byte, error) {
			text, ok := profiles.Fragment(name)
			if !ok {
				return nil, errors.New("no such fragment")
			}
			return profiles.Fill(text, func(v string) string { return own[v] })
		},
		Fragments: profiles.Fragments(), Flags: policy.Flags{Enable: fragments},
	}
}

// TestLoad holds that each built-in policy is a policy without mistakes and
// without findings, wherever it is used.
func TestLoad(t *testing.T) {
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			o := options(t, "")
			o.Arg = name
			p, err := policy.Load(o)
			if err != nil {
				t.Fatalf("load: got %v, want no mistake", err)
			}
			if p.Name != name {
				t.Errorf("name: got %q, want %q", p.Name, name)
			}
			if len(p.Warnings) > 0 {
				t.Errorf("warnings: got %v, want none", p.Warnings)
			}
		})
	}
}

// TestFragments holds the same of each fragment on top of strict. Its assertions
// are run by test/profiles.
func TestFragments(t *testing.T) {
	for _, name := range profiles.Fragments() {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "packages/") {
				return // they are completed from the user's configuration
			}
			p, _ := withFragment(t, name)
			if alone := strictAlone(t); p.Name != "p" || p.Description != alone.Description {
				t.Errorf("name and description: got %q and %q, want those of the policy and not of the fragment", p.Name, p.Description)
			}
			if len(p.Assert) == len(strictAlone(t).Assert) && name != "terminal/singularity" {
				t.Error("assertions: got none, want what it opens and what it does not")
			}
		})
	}
}

// TestCredentialsStayAtTheirHost holds that what a fragment has attached goes to
// its own hosts: every other host of every fragment gets nothing of it.
func TestCredentialsStayAtTheirHost(t *testing.T) {
	checked := 0
	for _, name := range profiles.Fragments() {
		if strings.HasPrefix(name, "packages/") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p, e := withFragment(t, name)
			checked += attached(t, p, e)
		})
	}
	if want := 15; checked < want {
		t.Errorf("got %d requests with a credential, want at least %d", checked, want)
	}
}

// attached counts the requests of a policy's assertions that get a credential.
func attached(t *testing.T, p policy.Policy, e *netpolicy.Engine) (checked int) {
	for _, a := range p.Assert {
		if a.Allow == nil || a.Allow.URL == "" || strings.Contains(a.Allow.URL, ".internal") {
			continue
		}
		method, url, _ := strings.Cut(a.Allow.URL, " ")
		d := ask(t, e, method, url)
		if d.Credential == "" {
			continue
		}
		checked++
		host, _, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
		if c := p.Credentials[d.Credential]; !slices.ContainsFunc(c.Hosts, func(n policy.Name) bool { return n.Text == host }) {
			t.Errorf("%s: got the credential %q, which is not of that host", url, d.Credential)
		}
		if other := ask(t, e, method, "https://example.org/v1/chat/completions"); other.Credential != "" {
			t.Errorf("another host: got the credential %q, want none", other.Credential)
		}
	}
	return checked
}

// ask judges a request over TLS.
func ask(t *testing.T, e *netpolicy.Engine, method, address string) netpolicy.Decision {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	h, port, err := netpolicy.ParseHostPort(u.Host, 443)
	if err != nil {
		t.Fatal(err)
	}
	return e.Request(netpolicy.Request{Host: h, Port: port, TLS: true, Method: method, Path: u.Path, Query: u.Query()})
}

func strictAlone(t *testing.T) policy.Policy {
	t.Helper()
	p, err := policy.Load(options(t, "version: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func withFragment(t *testing.T, name string) (policy.Policy, *netpolicy.Engine) {
	t.Helper()
	p, err := policy.Load(options(t, "version: 1\n", name))
	if err != nil {
		t.Fatalf("load: got %v, want no mistake", err)
	}
	if len(p.Warnings) > 0 {
		t.Errorf("warnings: got %v, want none", p.Warnings)
	}
	if _, err := inference.Compile(p.Inference); err != nil {
		t.Fatal(err)
	}
	e, err := netpolicy.Compile(p.Network, p.Inference.Routes...)
	if err != nil {
		t.Fatal(err)
	}
	return p, e
}
