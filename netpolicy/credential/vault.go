// Package credential keeps secrets on the outside: it makes placeholders in
// their shape, finds placeholders and live secrets in what leaves and comes in,
// and attaches secrets to requests. It does no I/O.
package credential

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// minSecret is the shortest text that is searched for.
const minSecret = 8

// Values are what a credential is at the moment. They travel from the launcher
// to the proxy and are printed nowhere.
type Values struct {
	// Secret is what the source gave.
	Secret string `json:"secret"`
	// Placeholder stands for it inside.
	Placeholder string `json:"placeholder"`
	// ClientSecret is the client's own secret for the token endpoint, if any.
	ClientSecret string `json:"client_secret,omitempty"`
}

// String hides the values from everything that prints.
func (Values) String() string { return "(secret)" }

// GoString hides them from %#v.
func (Values) GoString() string { return "(secret)" }

// Credential is one credential that can be attached.
type Credential struct {
	// Name is its name in the policy.
	Name string
	// Spec is its entry in the policy.
	Spec policy.Credential

	hosts  netpolicy.Hosts
	values Values
	token  endpoint
}

// endpoint is where access tokens are got.
type endpoint struct {
	host netpolicy.Host
	port uint16
	path string
}

// String hides the values from everything that prints.
func (c *Credential) String() string { return "credential " + c.Name }

// GoString hides them from %#v.
func (c *Credential) GoString() string { return c.String() }

// Bound tells whether the secret may go to a host.
func (c *Credential) Bound(h netpolicy.Host) bool { return c.hosts.Match(h) }

// Values gives what the credential is. With oauth the secret is the refresh
// token.
func (c *Credential) Values() Values { return c.values }

// TokenEndpoint is where the credential's access tokens are got; ok is false
// without oauth.
func (c *Credential) TokenEndpoint() (host netpolicy.Host, port uint16, path string, ok bool) {
	return c.token.host, c.token.port, c.token.path, c.Spec.OAuth != nil
}

// readEndpoint takes the address of the token endpoint apart.
func (c *Credential) readEndpoint() error {
	if c.Spec.OAuth == nil {
		return nil
	}
	u, err := url.Parse(c.Spec.OAuth.TokenURL)
	if err != nil || u.Scheme != "https" || u.User != nil {
		return errors.New("oauth.token_url is no https URL")
	}
	if c.token.host, c.token.port, err = netpolicy.ParseHostPort(u.Host, 443); err != nil {
		return fmt.Errorf("oauth.token_url: %w", err)
	}
	c.token.path, _, err = netpolicy.SplitTarget(cmp.Or(u.EscapedPath(), "/"))
	return err
}

// Vault holds the credentials of a policy. Nil is an empty one. It may be used
// by several goroutines.
type Vault struct {
	byName map[string]*Credential
	all    []*Credential // by name

	mu sync.Mutex // guards extra
	// extra are texts that were learnt on the way: access tokens.
	extra []known
	now   atomic.Pointer[search]
}

// known is a text and what stands for it.
type known struct {
	owner             string
	text, placeholder string
	// silent texts are not looked for in what leaves.
	silent bool
}

// search is what is looked for: leaving finds placeholders and secrets, coming
// finds secrets alone.
type search struct {
	leaving, coming *machine
	names           []string // of leaving's and coming's owners
	shown           []bool   // of names: the text is a placeholder
}

// New makes a vault of the policy's credentials and their values. Every
// mistake is reported.
func New(specs map[string]policy.Credential, values map[string]Values) (*Vault, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	v := &Vault{byName: map[string]*Credential{}}
	var errs []error
	shown := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		if _, ok := values[name]; !ok && specs[name].Optional {
			continue // nothing is attached, and what needs it is denied
		}
		c := &Credential{Name: name, Spec: specs[name], values: values[name]}
		var err error
		if c.hosts, err = netpolicy.ParseHosts(c.Spec.Hosts); err == nil {
			err = errors.Join(c.check(), c.readEndpoint())
		}
		if other, ok := shown[c.values.Placeholder]; ok && err == nil {
			err = fmt.Errorf("its placeholder is that of credential %q", other)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("credential %q: %w", name, err))
		}
		shown[c.values.Placeholder] = name
		v.byName[name], v.all = c, append(v.all, c)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	v.rebuild()
	return v, nil
}

// check refuses what could not be found again.
func (c *Credential) check() error {
	secret, placeholder := c.values.Secret, c.values.Placeholder
	switch {
	case secret == "":
		return errors.New("it has no secret")
	case len(secret) < minSecret || c.values.ClientSecret != "" && len(c.values.ClientSecret) < minSecret:
		return fmt.Errorf("the secret is shorter than %d characters", minSecret)
	case len(placeholder) < minSecret:
		return fmt.Errorf("the placeholder is shorter than %d characters", minSecret)
	case Printable(secret+placeholder+c.values.ClientSecret) != nil:
		return errors.New("secret or placeholder holds other than printable ASCII")
	case strings.Contains(placeholder, secret) || strings.Contains(secret, placeholder):
		return errors.New("secret and placeholder hold one another")
	}
	if c.Spec.Attach == "sigv4" {
		_, err := ParseKeys(secret)
		return err
	}
	return nil
}

// Empty tells whether there is nothing to attach and nothing to look for.
func (v *Vault) Empty() bool { return v == nil || len(v.byName) == 0 }

// Get gives a credential by its name, or nil.
func (v *Vault) Get(name string) *Credential {
	if v == nil {
		return nil
	}
	return v.byName[name]
}

// All gives the credentials in the order of their names.
func (v *Vault) All() []*Credential {
	if v == nil {
		return nil
	}
	return v.all
}

// Texts are the secrets and placeholders, for whoever keeps them out of what is
// written.
func (v *Vault) Texts() []string {
	var all []string
	for _, c := range v.All() {
		for _, k := range c.parts() {
			all = append(all, k.text, k.placeholder)
		}
	}
	return all
}

// BoundTo tells whether any secret may go to a host.
func (v *Vault) BoundTo(h netpolicy.Host) bool {
	return slices.ContainsFunc(v.All(), func(c *Credential) bool { return c.Bound(h) })
}

// maxLearnt bounds the texts learnt on the way, the newest of which count.
const maxLearnt = 8

// Learn adds a live secret of a credential: an access token. From then on it is
// looked for like the others.
func (v *Vault) Learn(name, secret string) {
	if v == nil || len(secret) < minSecret {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lockedLearn(known{owner: name, text: secret, placeholder: Placeholder(secret), silent: true}) {
		v.rebuild()
	}
}

// Learnt gives the live secrets of a credential that were learnt, the oldest first.
func (v *Vault) Learnt(name string) (texts []string) {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, k := range v.extra {
		if k.owner == name {
			texts = append(texts, k.text)
		}
	}
	return texts
}

// Inherit learns what another vault learnt of credentials that are here too: a
// token is as live as before when other rules are loaded.
func (v *Vault) Inherit(old *Vault) {
	if v == nil || old == nil || v == old {
		return
	}
	old.mu.Lock()
	extra := slices.Clone(old.extra)
	old.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	learnt := false
	for _, k := range extra {
		if v.byName[k.owner] != nil && v.lockedLearn(k) {
			learnt = true
		}
	}
	if learnt {
		v.rebuild()
	}
}

// lockedLearn adds a text, and forgets the oldest where there are too many. It
// tells whether it is new.
func (v *Vault) lockedLearn(k known) bool {
	if slices.ContainsFunc(v.extra, func(o known) bool { return o.text == k.text }) {
		return false
	}
	v.extra = append(v.extra, k)
	mine := func(o known) bool { return o.owner == k.owner }
	count := 0
	for _, o := range v.extra {
		if mine(o) {
			count++
		}
	}
	for ; count > maxLearnt; count-- {
		at := slices.IndexFunc(v.extra, mine)
		v.extra = slices.Delete(v.extra, at, at+1)
	}
	return true
}

// parts are the texts of a credential that are searched for one by one.
func (c *Credential) parts() []known {
	var all []known
	secrets, placeholders := []string{c.values.Secret}, []string{c.values.Placeholder}
	if c.Spec.Attach == "sigv4" {
		secrets, placeholders = strings.SplitN(c.values.Secret, ":", 3), strings.SplitN(c.values.Placeholder, ":", 3)
	}
	for i, s := range secrets {
		p := ""
		if i < len(placeholders) {
			p = placeholders[i]
		}
		all = append(all, known{owner: c.Name, text: s, placeholder: p})
	}
	if s := c.values.ClientSecret; s != "" {
		all = append(all, known{owner: c.Name, text: s, placeholder: Placeholder(s), silent: true})
	}
	return all
}

// rebuild makes the machines anew.
func (v *Vault) rebuild() {
	var all []known
	for _, c := range v.All() {
		all = append(all, c.parts()...)
	}
	all = append(all, v.extra...)
	var b builder
	for _, k := range all {
		b.secret(k)
	}
	for _, k := range all {
		if !k.silent && len(k.placeholder) >= minSecret {
			b.placeholder(k)
		}
	}
	v.now.Store(b.search())
}

// Of a text that is longer than longSecret (bytes), only the end is looked for:
// nobody can use it without, and the machines stay small.
const (
	longSecret = 512
	keptOfLong = 256
)

type builder struct {
	s               search
	leaving, coming []variant
	leavers, comers []int32
}

func (b *builder) secret(k known) {
	if len(k.text) < minSecret {
		return
	}
	k.placeholder = fit(k.placeholder, len(k.text))
	if n := len(k.text); n > longSecret {
		k.text, k.placeholder = k.text[n-keptOfLong:], k.placeholder[n-keptOfLong:]
	}
	b.s.names, b.s.shown = append(b.s.names, k.owner), append(b.s.shown, false)
	for _, t := range variants(k.text, k.placeholder) {
		b.leaving, b.coming = append(b.leaving, t), append(b.coming, t)
		b.leavers, b.comers = append(b.leavers, int32(len(b.s.names)-1)), append(b.comers, int32(len(b.s.names)-1))
	}
}

func (b *builder) placeholder(k known) {
	k.text = fit(k.text, len(k.placeholder))
	if n := len(k.placeholder); n > longSecret {
		k.text, k.placeholder = k.text[n-keptOfLong:], k.placeholder[n-keptOfLong:]
	}
	b.s.names, b.s.shown = append(b.s.names, k.owner), append(b.s.shown, true)
	for _, t := range variants(k.placeholder, k.text) {
		b.leaving, b.leavers = append(b.leaving, t), append(b.leavers, int32(len(b.s.names)-1))
	}
}

func (b *builder) search() *search {
	b.s.leaving, b.s.coming = build(b.leaving, b.leavers), build(b.coming, b.comers)
	return &b.s
}
