package proxy

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
)

// The times of getting an access token.
const (
	tokenTime    = 30 * time.Second // for one answer of the endpoint
	tokenRetry   = 5 * time.Second  // after a failure nobody asks again for so long
	tokenDefault = 10 * time.Minute // where the endpoint does not say how long a token is good
	tokenSkew    = time.Minute      // so long before its end a token is not used any more
)

// grants are the access tokens of a run. They outlive a reload.
type grants struct {
	mu     sync.Mutex
	byName map[string]keyedGrant
}

// grant is what one refresh token gave.
type grant struct {
	turn chan struct{} // holds one value while somebody asks the endpoint

	mu      sync.Mutex
	refresh string // the one that counts: the endpoint may have given another
	access  string
	until   time.Time
	failed  error
	retry   time.Time
	inBody  bool // the endpoint wants the client's secret in the body
}

// of gives the grant of a credential. Another refresh token from the launcher
// begins a new one.
func (g *grants) of(c *credential.Credential) *grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := c.Name + "\x00" + c.Spec.OAuth.TokenURL + "\x00" + c.Values().Secret + "\x00" + c.Values().ClientSecret
	if have, ok := g.byName[c.Name]; ok && have.key == key {
		return have.grant
	}
	if g.byName == nil {
		g.byName = map[string]keyedGrant{}
	}
	fresh := &grant{turn: make(chan struct{}, 1), refresh: c.Values().Secret}
	g.byName[c.Name] = keyedGrant{key, fresh}
	return fresh
}

// forget drops an access token that a server did not take.
func (g *grants) forget(name, access string) {
	g.mu.Lock()
	have, ok := g.byName[name]
	g.mu.Unlock()
	if !ok {
		return
	}
	have.grant.mu.Lock()
	defer have.grant.mu.Unlock()
	if have.grant.access == access {
		have.grant.access = ""
	}
}

// ready gives an access token that is still good, or the failure that is too
// young to try again.
func (g *grant) ready(now time.Time) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.access != "" && now.Before(g.until) {
		return g.access, nil
	}
	if g.failed != nil && now.Before(g.retry) {
		return "", g.failed
	}
	return "", nil
}

// current is the refresh token that counts.
func (g *grant) current() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refresh
}

// accessToken gives a token that is good now. Requests that need one at the same
// time wait for the same answer of the endpoint.
func (fl *flow) accessToken(c *credential.Credential) (string, *refusal) {
	g := fl.s.grants.of(c)
	ctx, cancel := context.WithTimeout(fl.out.Context(), tokenTime)
	defer cancel()
	access, err := g.ready(fl.s.now())
	if access == "" && err == nil {
		select {
		case g.turn <- struct{}{}:
			defer func() { <-g.turn }()
		case <-ctx.Done():
			return "", fl.noToken(c, errTokenLate)
		}
		if access, err = g.ready(fl.s.now()); access == "" && err == nil {
			access, err = fl.renew(ctx, c, g)
		}
	}
	if err != nil {
		return "", fl.noToken(c, err)
	}
	// Rules that were loaded since do not know them.
	fl.rules.Credentials.Learn(c.Name, access)
	if refresh := g.current(); refresh != c.Values().Secret {
		fl.rules.Credentials.Learn(c.Name, refresh)
	}
	return access, nil
}

// noToken is the answer when there is no access token. What the endpoint said is
// in it no further than as an error code.
func (fl *flow) noToken(c *credential.Credential, err error) *refusal {
	refused := unreachable(fl.f.host, http.StatusBadGateway, "no access token for credential \""+c.Name+"\": "+err.Error())
	fl.note = append(fl.note, func(e *audit.Event) { e.Credential = c.Name })
	return refused
}

// renew asks the endpoint for another token.
func (fl *flow) renew(ctx context.Context, c *credential.Credential, g *grant) (string, error) {
	got, err := fl.askEndpoint(ctx, c, g)
	now := fl.s.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.failed, g.retry = err, now.Add(tokenRetry)
		if tokenRefused(err) {
			fl.s.askAgain(c.Name) // the source may hold another refresh token by now
		}
		return "", err
	}
	v := fl.rules.Credentials
	v.Learn(c.Name, got.access)
	fl.s.Audit.Hide(got.access)
	if got.refresh != "" {
		v.Learn(c.Name, got.refresh)
		fl.s.Audit.Hide(got.refresh)
		g.refresh = got.refresh
	}
	g.access, g.failed = got.access, nil
	g.until = now.Add(got.lasts - min(tokenSkew, got.lasts/5))
	fl.s.keepTokens(c.Name, g.lockedKept(v.Learnt(c.Name)))
	return got.access, nil
}

type keyedGrant struct {
	key   string
	grant *grant
}
