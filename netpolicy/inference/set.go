package inference

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Provider is the shape of a provider's requests. The zero value is none.
type Provider string

// The providers.
const (
	OpenAI    Provider = "openai-compatible"
	Anthropic Provider = "anthropic"
	Gemini    Provider = "gemini"
	Local     Provider = "local"
)

// Set is a compiled inference section. It is immutable; the zero value and nil
// deny everything.
type Set struct {
	routes []*route
	prices []price // the longest pattern first
	budget policy.Budget
	stop   policy.HardStop
}

// route is one compiled policy.Route.
type route struct {
	policy.Route
	index    int
	provider Provider
	host     netpolicy.Host
	// deployment is the model that the base path fixes, or "".
	deployment string
}

type price struct {
	pattern string
	policy.Price
}

// Compile checks the inference section. The error is a policy.Problems with
// every mistake.
func Compile(in policy.Inference) (*Set, error) {
	s := &Set{budget: in.Budget, stop: in.HardStop}
	var problems policy.Problems
	for pattern, p := range in.Prices {
		s.prices = append(s.prices, price{pattern, p})
		if p.Input < 0 || p.CachedInput < 0 || p.Output < 0 {
			problems = append(problems, policy.Problem{Path: fmt.Sprintf("inference.prices[%q]", pattern), What: "negative"})
		}
	}
	slices.SortFunc(s.prices, func(a, b price) int {
		return cmp.Or(cmp.Compare(len(b.pattern), len(a.pattern)), cmp.Compare(a.pattern, b.pattern))
	})
	for i, r := range in.Routes {
		compiled, errs := compileRoute(i, r)
		errs = append(errs, s.checkPrices(compiled)...)
		for _, err := range errs {
			problems = append(problems, policy.Problem{Pos: r.Pos, Path: fmt.Sprintf("inference.routes[%d]", i), What: err.Error()})
		}
		s.routes = append(s.routes, compiled)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return s, nil
}

func compileRoute(i int, r policy.Route) (*route, []error) {
	c := &route{Route: r, index: i, provider: Provider(r.Provider)}
	var errs []error
	c.Name = cmp.Or(c.Name, fmt.Sprintf("inference.routes[%d]", i))
	switch c.provider {
	case OpenAI, Local:
		c.Base = cmp.Or(c.Base, "/v1")
	case Anthropic, Gemini:
	default:
		errs = append(errs, fmt.Errorf("provider: unknown provider %q", r.Provider))
	}
	c.Base = strings.TrimRight(c.Base, "/")
	if path, err := netpolicy.CanonicalPath(c.Base + "/x"); err != nil || path != c.Base+"/x" {
		errs = append(errs, errors.New("base: not a path in canonical form"))
	}
	if _, after, ok := strings.Cut(c.Base, "/deployments/"); ok {
		c.deployment, _, _ = strings.Cut(after, "/")
	}
	if c.Port == 0 {
		c.Port = 443
		if c.Plain {
			c.Port = 80
		}
	}
	var err error
	if c.host, err = netpolicy.ParseHost(r.Host); err != nil {
		errs = append(errs, fmt.Errorf("host: %w", err))
	}
	if c.Plain && c.Credential != "" {
		errs = append(errs, errors.New("plain: a route with a credential speaks TLS"))
	}
	for from, to := range r.Rename {
		if !isModel(from) || !isModel(to) {
			errs = append(errs, fmt.Errorf("rename: %q or %q is no name of a model", from, to))
		} else if !c.allows(to) {
			errs = append(errs, fmt.Errorf("rename: %q is not among the models", to))
		}
	}
	return c, errs
}

// checkPrices refuses a budget in money that could not be counted.
func (s *Set) checkPrices(r *route) []error {
	if s.budget.Money <= 0 && s.budget.MoneyPerMinute <= 0 {
		return nil
	}
	models := r.Models
	if len(models) == 0 {
		models = []string{"**"}
	}
	var errs []error
	for _, m := range models {
		if !slices.ContainsFunc(s.prices, func(p price) bool { return covers(p.pattern, m) }) {
			errs = append(errs, fmt.Errorf("models: no price for %q, which a budget in money needs", m))
		}
	}
	return errs
}

// allows tells whether a model may be asked for.
func (r *route) allows(model string) bool {
	return len(r.Models) == 0 || matchesAny(r.Models, model)
}

// renamed gives the model to ask for.
func (r *route) renamed(model string) string { return cmp.Or(r.Rename[model], model) }

// price gives what a model costs.
func (s *Set) price(model string) (policy.Price, bool) {
	for _, p := range s.prices {
		if matches(p.pattern, model) {
			return p.Price, true
		}
	}
	return policy.Price{}, false
}

// Budget is what the policy lets one run use.
func (s *Set) Budget() policy.Budget {
	if s == nil {
		return policy.Budget{}
	}
	return s.budget
}

// maxModel bounds the name of a model.
const maxModel = 256

// isModel tells whether a name can be that of a model: no spaces, no control
// bytes and nothing that one reader trims and another does not.
func isModel(s string) bool {
	if s == "" || len(s) > maxModel {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("._:/@+-~", c) < 0 {
			return false
		}
	}
	return true
}
