package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

func engineFor(t *testing.T, rules ...policy.Rule) *netpolicy.Engine {
	t.Helper()
	e, err := netpolicy.Compile(policy.Network{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// What the launch set up bounds what a reload can bring.
func TestReloadNeedsWhatTheLaunchSetUp(t *testing.T) {
	tcp := func(port int) policy.Rule {
		return policy.Rule{Name: "t", Host: "t.example.org", Protocol: policy.ProtocolTCP, Ports: []int{port}}
	}
	web := policy.Rule{Name: "w", Host: "w.example.org"}
	cases := []struct {
		name       string
		inspects   bool
		uncaptured bool
		at, then   policy.Rule
		want       string
	}{
		{"control: the same", true, false, web, web, ""},
		{"the first inspected host", false, false, tcp(5432), web, "nothing was inspected at launch"},
		{"no inspected host any more", true, false, web, tcp(5432), ""},
		{"another port, all are captured", false, false, tcp(5432), tcp(5433), ""},
		{"another port, none is captured", false, true, tcp(5432), tcp(5433), "ports 5433 are not captured"},
		{"the same port, none is captured", false, true, tcp(5432), tcp(5432), ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := &launch{prep: prepared{engine: engineFor(t, c.at), plan: sandbox.Plan{Inspect: c.inspects}}}
			l.uncaptured.Store(c.uncaptured)
			r := &reloader{launch: l}
			got := strings.Join(r.unserved(engineFor(t, c.then)), "; ")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("static: got %q, want %q", got, c.want)
			}
		})
	}
}

// A reload before the proxy serves changes nothing.
func TestReloadWhileStarting(t *testing.T) {
	r := &reloader{launch: &launch{}, px: newProxyClient(proxyNeeds{})}
	if _, _, err := r.apply(); !errors.Is(err, errStarting) {
		t.Errorf("got %v, want %v", err, errStarting)
	}
}

// The answer names each mistake and each static key, within what a packet holds.
func TestAnswerOfAFailedReload(t *testing.T) {
	var many policy.Problems
	for range 10 * controlProblems {
		many = append(many, policy.Problem{Path: "network.rules[0]", What: "is wrong"})
	}
	var a controlAnswer
	a.failed(many)
	if len(a.Problems) != controlProblems || a.Error == "" || a.Reload != nil {
		t.Errorf("mistakes: got %d and %q, want %d and an error", len(a.Problems), a.Error, controlProblems)
	}
	a = controlAnswer{}
	a.failed(&staticError{[]string{"env.set"}})
	if len(a.Static) != 1 || !strings.Contains(a.Error, "static sections changed: env.set") {
		t.Errorf("static: got %q and %q", a.Static, a.Error)
	}
	a = controlAnswer{}
	if a.failed(nil); a.Error != "" {
		t.Errorf("no error: got %q", a.Error)
	}
}

// While the command may have the terminal raw, lines end so that the next one
// begins at the left.
func TestInterject(t *testing.T) {
	var b bytes.Buffer
	voice{w: &b}.interject().note("two\nlines")
	if got, want := b.String(), "hermes-wrap: note: two\r\nhermes-wrap: note: lines\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A secret that is visible inside cannot come by a reload.
func TestReloadRefusesASecretThatShows(t *testing.T) {
	const value = "ghp_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
	p := policy.Policy{Credentials: map[string]policy.Credential{"gh": {Source: policy.CredentialSource{Env: "TOKEN"}, Attach: "bearer"}}}
	values := map[string]credential.Values{"gh": {Secret: value, Placeholder: "ghp_placeholderplaceholder"}}
	for name, plan := range map[string]sandbox.Plan{
		"variable": {Env: []string{"OTHER=x-" + value}}, "argument": {Argv: []string{"agent", value}}, "directory": {Cwd: "/srv/" + value},
	} {
		r := &reloader{launch: &launch{prep: prepared{plan: plan}}, px: newProxyClient(proxyNeeds{})}
		if _, err := r.hand(p, values); err == nil || strings.Contains(err.Error(), value) || r.given != nil {
			t.Errorf("%s: got %v, want a refusal without the secret", name, err)
		}
	}
}

// A secret that could not be handed to the proxy is handed over the next time.
func TestRereadTriesAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	writeSecret(t, path, "ghp_FirstFirstFirstFirst")
	p := policy.Policy{Credentials: map[string]policy.Credential{"gh": fileCredential(path)}}
	l := &launch{keeper: newKeeper(nil), prep: prepared{policy: p}}
	given, err := l.keeper.read(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs, err := sandbox.NewChannelPair()
	if err != nil {
		t.Fatal(err)
	}
	theirs.Close() // the proxy takes nothing
	px := newProxyClient(proxyNeeds{})
	px.serves(newProxyLife("proxy", ours))
	r := &reloader{launch: l, px: px, given: given, now: l.prep}
	if err := r.reread("gh"); err != nil {
		t.Fatalf("control: got %v, want nothing to hand over", err)
	}
	writeSecret(t, path, "ghp_SecondSecondSecondSecond")
	for i := range 2 {
		if err := r.reread("gh"); err == nil {
			t.Errorf("attempt %d: got no error, want one: the proxy has the old secret", i)
		}
	}
}

// What a service manager hands over is a file with a secret like any other.
func TestSecretFilesOfServices(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "/run/credentials/agent.service")
	p := policy.Policy{Credentials: map[string]policy.Credential{"gh": {Source: policy.CredentialSource{Systemd: "token"}}}}
	r := &reloader{launch: &launch{prep: prepared{plan: sandbox.Plan{View: []sandbox.Entry{{Kind: sandbox.KindBind, Source: "/run", Target: "/run"}}}}}}
	if err := r.outOfReach(p); err == nil || !strings.Contains(err.Error(), "/run/credentials/agent.service/token") {
		t.Errorf("got %v, want a refusal that names the file", err)
	}
	r.launch.prep.plan.View = nil
	if err := r.outOfReach(p); err != nil {
		t.Errorf("control: got %v, want none", err)
	}
}
