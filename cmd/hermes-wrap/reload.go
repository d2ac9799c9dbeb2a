package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// reloader loads the policy of a run again. Reloads come from the control
// socket and from SIGHUP, and are carried out one after the other.
type reloader struct {
	launch *launch
	px     *proxyClient
	base   string // of the command, which the default policy depends on

	sources launchSources

	turn sync.Mutex // one reload at a time
	// given are the secrets that the proxy has. What was read and could not be
	// handed over is not among them, so it is handed over the next time.
	given map[string]credential.Values

	mu  sync.Mutex
	now prepared // what is in force
}

func newReloader(l *launch, px *proxyClient, given map[string]credential.Values) (*reloader, error) {
	sources, err := openSources(l.prep.policy, l.prep.plan)
	return &reloader{launch: l, px: px, sources: sources, given: given, base: l.prep.plan.Argv[0], now: l.prep}, err
}

// inForce is what the run is judged by.
func (r *reloader) inForce() prepared {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// reloaded is the outcome of one reload.
type reloaded struct {
	// Policy is the name, Digest that of the policy in force, Was the one before.
	Policy string `json:"policy"`
	Digest string `json:"digest"`
	Was    string `json:"was"`
	// Changed names what is different now.
	Changed []string `json:"changed"`
	// Closed is the number of tunnels that the new policy forbids.
	Closed int `json:"closed"`
}

// staticError is a change that only the next run can have.
type staticError struct{ keys []string }

func (e *staticError) Error() string {
	return "static sections changed: " + strings.Join(e.keys, ", ") + "; end the run to apply them"
}

// errStarting is the answer while the launch is under way.
var errStarting = errors.New("the run is still starting; try again in a moment")

// reload puts the policy in force that a new run with the same flags would get.
// After an error the old one stays. It returns when the proxy judges by the new
// one, and the outcome is on record.
func (r *reloader) reload() (reloaded, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	was := r.inForce().policy
	next, out, err := r.apply()
	e := audit.Event{Kind: audit.KindReload, Verdict: audit.Allow, Policy: was.Name, Digest: out.Digest}
	if err != nil {
		e.Verdict, e.Digest = audit.Deny, next.Digest
		e.Reason = fmt.Sprintf("digest %s stays in force: %s", was.Digest, firstProblem(err))
		return out, errors.Join(err, r.launch.write(e))
	}
	e.Reason = fmt.Sprintf("digest %s is replaced; changed: %s; tunnels closed: %d", was.Digest, cmp.Or(strings.Join(out.Changed, ", "), "nothing"), out.Closed)
	if err := r.launch.write(e); err != nil {
		r.px.end(err) // the policy requires a record
		return out, err
	}
	return out, nil
}

// apply gives the policy that was loaded, also when it is not in force.
func (r *reloader) apply() (p policy.Policy, out reloaded, err error) {
	if !r.px.isReady() {
		return p, out, errStarting
	}
	if p, err = r.launch.who.load(r.launch.flags.policyFlags, []string{r.base}); err != nil {
		return p, out, err
	}
	was := r.inForce().policy
	out = reloaded{Policy: p.Name, Digest: p.Digest, Was: was.Digest, Changed: policy.Changes(was, p)}
	next, err := r.judge(p, out.Changed)
	if err != nil {
		return p, out, err
	}
	values, err := r.launch.keeper.read(context.Background(), p)
	if err != nil {
		return p, out, err
	}
	tokens, err := r.launch.keeper.tokens(context.Background(), p)
	if err != nil {
		return p, out, err
	}
	r.launch.tokens = tokens // one reload at a time
	if out.Closed, err = r.hand(p, values); err != nil {
		return p, out, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = next
	return p, out, nil
}

// hand has the proxy judge by a policy and its secrets, and returns when it does.
func (r *reloader) hand(p policy.Policy, values map[string]credential.Values) (closed int, err error) {
	if err := r.launch.keepHidden(p, values); err != nil {
		return 0, err
	}
	secrets, err := readSecrets(p, values, r.launch.tokens)
	if err != nil {
		return 0, err
	}
	if closed, err = r.px.update(p, secrets); err == nil {
		r.given = values
	}
	return closed, err
}

// judge decides whether a policy can take over in this run.
func (r *reloader) judge(p policy.Policy, changed []string) (prepared, error) {
	static := slices.DeleteFunc(slices.Clone(changed), policy.Live)
	next := r.inForce()
	next.policy = p
	var err error
	if next.engine, err = compileNetwork(p); err != nil {
		return next, err
	}
	static = append(static, r.unserved(next.engine)...)
	if len(static) > 0 {
		return next, &staticError{static}
	}
	if err := r.outOfReach(p); err != nil {
		return next, err
	}
	return next, checkAssertions(next)
}

// unserved names what rules want and the launch did not provide.
func (r *reloader) unserved(e *netpolicy.Engine) (keys []string) {
	if e.Inspects() && !r.launch.prep.plan.Inspect {
		keys = append(keys, "network.rules (nothing was inspected at launch, so programs inside know no certificate authority)")
	}
	if !r.launch.uncaptured.Load() {
		return keys
	}
	var ports []string
	for _, port := range e.Ports() {
		if !slices.Contains(r.launch.prep.engine.Ports(), port) {
			ports = append(ports, fmt.Sprint(port))
		}
	}
	if len(ports) > 0 {
		keys = append(keys, "network.rules (ports "+strings.Join(ports, ", ")+" are not captured: without nf_tables the launch fixes them)")
	}
	return keys
}

// outOfReach refuses files that the command could change or read.
func (r *reloader) outOfReach(p policy.Policy) error {
	if err := r.sources.believable(p, r.launch.prep.plan); err != nil {
		return err
	}
	for _, f := range secretFiles(p) {
		if v := r.launch.prep.plan.Judge(f.Abs, "read"); v.Allowed && !v.Private {
			return policy.Problem{Pos: f.Pos, What: fmt.Sprintf("%q can be read inside; keep secrets outside of every granted path", f.Abs)}
		}
	}
	return nil
}

// secretFiles lists the files with secrets that a policy names.
func secretFiles(p policy.Policy) (out []policy.Path) {
	for _, c := range p.Credentials {
		out = append(out, sourceFile(c.Source, c.Pos))
		if c.OAuth != nil && c.OAuth.ClientSecret != nil {
			out = append(out, sourceFile(*c.OAuth.ClientSecret, c.Pos))
		}
	}
	for _, c := range p.Network.Upstream.Certificates {
		out = append(out, c.Key)
	}
	for _, e := range p.Network.Publish {
		out = append(out, e.TLS.Cert, e.TLS.Key)
		if e.Bearer != nil {
			out = append(out, sourceFile(*e.Bearer, e.Pos))
		}
	}
	return slices.DeleteFunc(out, func(f policy.Path) bool { return f.Abs == "" })
}

// sourceFile gives the file that a secret is read from, if it is one.
func sourceFile(s policy.CredentialSource, pos policy.Pos) policy.Path {
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); s.Systemd != "" && filepath.IsAbs(dir) {
		return policy.Path{Abs: filepath.Join(dir, s.Systemd), Pos: pos}
	}
	if s.Dotenv.Abs != "" {
		return s.Dotenv
	}
	return s.File
}

// refreshPause is the least time between two readings of the secrets.
const refreshPause = time.Second

// refreshSecrets reads the sources again when the proxy asks, until it ends.
func (r *reloader) refreshSecrets() {
	for {
		select {
		case <-r.px.gone:
			return
		case name := <-r.px.refresh:
			if err := r.reread(name); errors.Is(err, errAway) || errors.Is(err, errUnanswered) {
				r.px.askAgain(name) // the next proxy has what the last one had
			} else if err != nil {
				r.launch.voice.interject().warn(fmt.Sprintf("credential %q could not be read again, and the old secret stays: %v", name, err))
			}
		}
		select {
		case <-r.px.gone:
			return
		case <-time.After(refreshPause):
		}
	}
}

// reread reads the source of one credential. The proxy learns of it only when it
// gave another secret.
func (r *reloader) reread(name string) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	p := r.inForce().policy
	values, err := r.launch.keeper.read(context.Background(), p, name)
	if err != nil || values[name] == r.given[name] {
		return err
	}
	if _, err = r.hand(p, values); err != nil {
		return err
	}
	return r.launch.write(audit.Event{Kind: audit.KindSecret, Credential: name, Reason: "its source was read again and gave another secret"})
}

// hangup reloads for SIGHUP, whose sender gets no answer: what went wrong is
// said on stderr.
func (r *reloader) hangup() {
	if _, err := r.reload(); err != nil {
		r.launch.voice.interject().fail(fmt.Errorf("reload: %w", err))
	}
}

// firstProblem keeps the record's line short.
func firstProblem(err error) string {
	var problems policy.Problems
	if errors.As(err, &problems) && len(problems) > 1 {
		return fmt.Sprintf("%s (and %d more)", problems[0].Error(), len(problems)-1)
	}
	return err.Error()
}
