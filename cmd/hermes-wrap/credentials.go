package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/signal"
	"reflect"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
	"github.com/hermes-wrap/hermes-wrap/secret"
)

// keeper reads the secrets of a run and remembers what stands for them inside: a
// placeholder stays the same when its secret changes.
type keeper struct {
	reader secret.Reader

	mu   sync.Mutex
	kept map[string]kept
}

// kept is a credential as it was last read.
type kept struct {
	spec   policy.Credential
	values credential.Values
}

func newKeeper(environ []string) *keeper {
	return &keeper{reader: secret.Reader{Environ: environ}, kept: map[string]kept{}}
}

// read gives the values of a policy's credentials, without those that are
// optional and have none. Those that were read before
// are read again only when they are named or when their entry changed. Every
// mistake is reported.
func (k *keeper) read(ctx context.Context, p policy.Policy, again ...string) (map[string]credential.Values, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]credential.Values{}
	var problems policy.Problems
	for _, name := range slices.Sorted(maps.Keys(p.Credentials)) {
		spec := p.Credentials[name]
		have, known := k.kept[name]
		if known && sameSource(have.spec, spec) && !slices.Contains(again, name) {
			out[name] = have.values
			continue
		}
		v, err := k.lockedRead(ctx, name, spec)
		if spec.Optional && !known && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			problems = append(problems, policy.Problem{Pos: spec.Pos, Path: "credentials." + name, What: err.Error()})
			continue
		}
		out[name] = v
	}
	if len(problems) > 0 {
		return nil, problems
	}
	for name, v := range out {
		k.kept[name] = kept{p.Credentials[name], v}
	}
	return out, nil
}

// sameSource tells whether two entries get the same secret.
func sameSource(a, b policy.Credential) bool {
	clear := func(c policy.Credential) policy.Credential {
		c.Pos, c.Hosts, c.Refresh = policy.Pos{}, nil, 0
		return c
	}
	return reflect.DeepEqual(clear(a), clear(b))
}

func (k *keeper) lockedRead(ctx context.Context, name string, spec policy.Credential) (v credential.Values, err error) {
	if v.Secret, err = k.reader.Read(ctx, spec.Source); err != nil {
		return v, err
	}
	if spec.OAuth != nil && spec.OAuth.ClientSecret != nil {
		if v.ClientSecret, err = k.reader.Read(ctx, *spec.OAuth.ClientSecret); err != nil {
			return v, fmt.Errorf("oauth.client_secret: %w", err)
		}
	}
	v.Placeholder = k.kept[name].values.Placeholder
	if v.Placeholder == "" || spec.Expose.Placeholder != "" {
		v.Placeholder = spec.Expose.Placeholder
	}
	if v.Placeholder == "" {
		v.Placeholder = placeholderOf(spec, v.Secret)
	}
	// What cannot be used stops the launch here, with its place in the policy.
	_, err = credential.New(map[string]policy.Credential{name: spec}, map[string]credential.Values{name: v})
	return v, err
}

// placeholderOf makes a placeholder; that of a pair of keys is a pair.
func placeholderOf(spec policy.Credential, value string) string {
	if spec.Attach != "sigv4" {
		return credential.Placeholder(value)
	}
	parts := strings.SplitN(value, ":", 3)
	for i, p := range parts {
		parts[i] = credential.Placeholder(p)
	}
	return strings.Join(parts, ":")
}

// exposed gives the variables in which a credential's placeholder shows. Clients
// of AWS read its parts from three.
func exposed(spec policy.Credential, placeholder string) map[string]string {
	name := spec.Expose.Env
	switch {
	case name == "":
		return nil
	case spec.Attach != "sigv4":
		return map[string]string{name: placeholder}
	}
	out := map[string]string{}
	name = strings.TrimSuffix(name, "_ACCESS_KEY_ID")
	suffixes := []string{"_ACCESS_KEY_ID", "_SECRET_ACCESS_KEY", "_SESSION_TOKEN"}
	for i, part := range strings.SplitN(placeholder, ":", 3) {
		out[name+suffixes[i]] = part
	}
	return out
}

// withPlaceholders puts placeholders into an environment, whatever it had there.
func withPlaceholders(env []string, p policy.Policy, values map[string]credential.Values) []string {
	set, every := map[string]string{}, map[string]string{}
	for name, v := range values {
		maps.Copy(set, exposed(p.Credentials[name], v.Placeholder))
	}
	for _, spec := range p.Credentials {
		maps.Copy(every, exposed(spec, "::"))
	}
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, ours := every[name]
		return ours
	})
	for name, v := range set {
		out = append(out, name+"="+v)
	}
	slices.Sort(out)
	return out
}

// foreseen shows where placeholders are going to be, for a plan that nobody runs.
func foreseen(env []string, p policy.Policy) []string {
	values := map[string]credential.Values{}
	for name, spec := range p.Credentials {
		values[name] = credential.Values{Placeholder: "(placeholder of credential " + name + ")"}
		if spec.Attach == "sigv4" {
			values[name] = credential.Values{Placeholder: strings.Repeat("(placeholder of credential "+name+"):", 2) + "(if there is one)"}
		}
	}
	return withPlaceholders(env, p, values)
}

// takeSecrets reads the secrets, puts placeholders into the plan, and makes sure
// that nothing else of it holds a secret.
func (l *launch) takeSecrets() (map[string]credential.Values, error) {
	p := l.prep.policy
	l.keeper.reader.Changeable = l.prep.plan.Changeable
	if len(p.Credentials) == 0 && len(p.Network.Publish) == 0 {
		return nil, nil
	}
	// A command may wait for its user. Whoever gives up then still gets an orderly
	// end: of the command, of the record, of the run's directory.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	values, err := l.keeper.read(ctx, p)
	if err == nil {
		err = l.takeTokens(ctx)
	}
	if ctx.Err() != nil {
		return nil, errors.New("a signal ended the launch while secrets were read")
	}
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(p.Credentials)) {
		if _, ok := values[name]; !ok && !l.flags.quiet {
			l.voice.warn(fmt.Sprintf("credential %q has no secret: %s does not exist; requests that need it are denied",
				name, secret.Describe(p.Credentials[name].Source)))
		}
	}
	l.prep.plan.Env = withPlaceholders(l.prep.plan.Env, p, values)
	if err := requiredKeys(p, l.prep.plan, values); err != nil {
		return nil, err
	}
	return values, l.keepHidden(p, values)
}

// keepHidden leaves secrets out of the launcher's lines of the record, and
// refuses those that are visible inside.
func (l *launch) keepHidden(p policy.Policy, values map[string]credential.Values) error {
	vault, err := credential.New(p.Credentials, values)
	if err != nil {
		return err
	}
	l.log.Hide(vault.Texts()...)
	return nothingShows(l.prep.plan, vault)
}

// nothingShows refuses a plan in which a secret is visible inside.
func nothingShows(plan sandbox.Plan, vault *credential.Vault) error {
	var errs []error
	for _, kv := range plan.Env {
		name, value, _ := strings.Cut(kv, "=")
		if f, found := vault.FindSecret(value); found {
			errs = append(errs, fmt.Errorf("variable %q would show %s inside: remove it from env, or write expose: {env: %s}", name, f, name))
		}
	}
	for i, arg := range plan.Argv {
		if f, found := vault.FindSecret(arg); found {
			errs = append(errs, fmt.Errorf("argument %d of the command holds %s, which everybody inside could read", i, f))
		}
	}
	if f, found := vault.FindSecret(plan.Cwd + " " + plan.Home + " " + plan.Hostname); found {
		errs = append(errs, fmt.Errorf("the working directory, the home or the host name holds %s", f))
	}
	return errors.Join(errs...)
}
