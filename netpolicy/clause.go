package netpolicy

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// clause is one compiled policy.Match.
type clause struct {
	methods methodSet
	paths   []pathGlob
	loose   []pathGlob
	query   []queryGlob
	pos     policy.Pos
}

// queryGlob is a parameter and the pattern of its values, in which "*" stands
// for any run of characters, slashes too.
type queryGlob struct {
	name  string
	value glob
}

// parseClause compiles a clause; absent is what no mention of methods means.
func parseClause(m policy.Match, absent methodSet) (clause, error) {
	c := clause{methods: absent, pos: m.Pos}
	if m.Methods != nil {
		set, err := parseMethods(m.Methods)
		if err != nil {
			return clause{}, err
		}
		c.methods = set
	}
	if m.Methods != nil && len(m.Methods) == 0 || m.Paths != nil && len(m.Paths) == 0 {
		return clause{}, errors.New("empty list, which matches nothing")
	}
	for _, text := range m.Paths {
		g, err := parsePathGlob(text)
		if err != nil {
			return clause{}, fmt.Errorf("path %q: %w", text, err)
		}
		c.paths = append(c.paths, g)
		c.loose = append(c.loose, g.loose())
	}
	for _, name := range slices.Sorted(maps.Keys(m.Query)) {
		if name == "" {
			return clause{}, errors.New("query parameter without a name")
		}
		c.query = append(c.query, queryGlob{name: name, value: newGlob(m.Query[name])})
	}
	return c, nil
}

// allows tells whether the whole request lies inside the clause: a named
// parameter must be there, and each of its values must match.
func (c *clause) allows(r *Request) bool {
	if !c.methods.has(r.Method) || !c.hasPath(r.Path) {
		return false
	}
	for i := range c.query {
		q := &c.query[i]
		if matched, other := q.count(r.Query); len(r.Query[q.name]) == 0 || matched == 0 || other > 0 {
			return false
		}
	}
	return true
}

// denies tells whether the request touches the clause: one value of each named
// parameter is enough, because it is unknown which one the server reads.
func (c *clause) denies(r *Request) bool {
	if !c.methods.has(r.Method) || !c.hasPath(r.Path) && !c.hasLoosePath(r.Path) {
		return false
	}
	for i := range c.query {
		if matched, _ := c.query[i].count(r.Query); matched == 0 {
			return false
		}
	}
	return true
}

// count gives how many values of the parameter match and how many do not. Some
// servers do not tell parameters apart by case, so all spellings count.
func (q *queryGlob) count(query url.Values) (matched, other int) {
	for name, values := range query {
		if !strings.EqualFold(name, q.name) {
			continue
		}
		for _, v := range values {
			if q.value.match(v, false) {
				matched++
			} else {
				other++
			}
		}
	}
	return matched, other
}

func (c *clause) hasPath(path string) bool {
	for _, g := range c.paths {
		if g.match(path) {
			return true
		}
	}
	return len(c.paths) == 0
}

func (c *clause) hasLoosePath(path string) bool {
	for _, g := range c.loose {
		if g.matchLoose(path) {
			return true
		}
	}
	return false
}
