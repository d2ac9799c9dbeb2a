package policy

import (
	"fmt"
	"strings"
)

// validateInference checks each route and number by itself.
func (l *layer) validateInference() {
	seen := map[string]Pos{}
	for i, r := range l.pol.Inference.Routes {
		path := fmt.Sprintf("inference.routes[%d]", i)
		l.validateRoute(path, r)
		if first, dup := seen[r.Name]; dup && r.Name != "" {
			l.add(l.at(path+".name"), path+".name", fmt.Sprintf("the name %q is taken by the route on line %d", r.Name, first.Line), "give each route its own name")
		}
		seen[r.Name] = l.at(path + ".name")
	}
	for _, key := range []string{"exact_failure", "no_progress"} {
		path := "inference.hard_stop." + key
		n := map[string]int{"exact_failure": l.pol.Inference.HardStop.ExactFailure, "no_progress": l.pol.Inference.HardStop.NoProgress}[key]
		if l.has(path) && n == 1 {
			l.add(l.at(path), path, "1 would stop what happened only once", "write 2 or more, or 0 to switch it off")
		}
	}
}

func (l *layer) validateRoute(path string, r Route) {
	if strings.HasPrefix(r.Host, "*") {
		l.add(l.at(path+".host"), path+".host", fmt.Sprintf("%q: a route has one host", r.Host), "write a route for each")
	}
	if strings.Contains(r.Base, "*") || len(r.Base) > 1 && strings.HasSuffix(r.Base, "/") {
		l.add(l.at(path+".base"), path+".base", fmt.Sprintf("%q is not a plain path", r.Base), `write it as "/api/v1"`)
	}
	if l.has(path+".port") && r.Port < 1 {
		l.add(l.at(path+".port"), path+".port", fmt.Sprintf("%d is not a port", r.Port), "ports are 1 to 65535, decimal")
	}
	if r.Plain && r.Credential != "" {
		l.add(l.at(path+".credential"), path+".credential", "a plain route has no TLS, and a secret goes nowhere without", "remove plain, or the credential")
	}
	for _, from := range sortedKeys(r.Rename) {
		to, at := r.Rename[from], path+".rename."+from
		switch {
		case strings.Contains(from+to, "*"):
			l.add(l.at(at), at, "a model is renamed by its whole name, without wildcards", "write both names out")
		case from == "" || to == "":
			l.add(l.at(at), at, "a name is empty", "write both names out")
		case len(r.Models) > 0 && !coversSome(r.Models, to):
			l.add(l.at(at), at, fmt.Sprintf("the new name %q is not among the models of the route", to), `add it to "models"`)
		}
	}
}

// coversSome tells whether one of the patterns stands for all that p stands for.
func coversSome(patterns []string, p string) bool {
	return anyOf(patterns, p, coversPattern)
}

// inference checks what routes, prices and budgets say about each other.
func (j *judging) inference() {
	in := j.policy.Inference
	rules := map[string]Pos{}
	for _, r := range j.policy.Network.Rules {
		rules[r.Name] = r.Pos
	}
	routes := map[string]Pos{}
	for _, r := range in.Routes {
		if pos, taken := rules[r.Name]; taken {
			j.refuse(r.Pos, "inference.routes", fmt.Sprintf("the name %q is taken by the rule at %v", r.Name, pos), "a denial names one of the two: choose another name")
		}
		if pos, taken := routes[r.Name]; taken {
			j.refuse(r.Pos, "inference.routes", fmt.Sprintf("the name %q is taken by the route at %v", r.Name, pos), "choose another name")
		}
		routes[r.Name] = r.Pos
	}
	if in.Budget.Money == 0 && in.Budget.MoneyPerMinute == 0 {
		return
	}
	for _, r := range in.Routes {
		j.priced(r)
	}
	if len(in.Routes) == 0 && len(in.Prices) == 0 {
		j.refuse(j.moneyPos(), "inference.budget", "a budget in money needs prices", "write inference.prices, or a budget in tokens")
	}
}

// moneyPos is where a budget in money was written.
func (j *judging) moneyPos() Pos {
	if pos, ok := j.policy.Where["inference.budget.money"]; ok {
		return pos
	}
	return j.policy.Where["inference.budget.money_per_minute"]
}

// priced wants a price for every model of a route.
func (j *judging) priced(r Route) {
	prices := sortedKeys(j.policy.Inference.Prices)
	const hint = "write it in inference.prices; a model that costs nothing has {input: 0, output: 0}"
	if len(r.Models) == 0 && !coversSome(prices, "**") {
		j.refuse(r.Pos, "inference.routes", fmt.Sprintf("the route %q allows every model, and the budget is in money", r.Name), `list its "models" and their prices`)
		return
	}
	for _, m := range r.Models {
		if !coversSome(prices, m) {
			j.refuse(r.Pos, "inference.prices", fmt.Sprintf("the budget is in money, and the model %q of the route %q has no price", m, r.Name), hint)
		}
	}
}
