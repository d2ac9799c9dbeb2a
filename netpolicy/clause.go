package netpolicy

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
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
	headers []string // canonical names
	maxBody int64    // 0: no limit
	pos     policy.Pos
}

// queryGlob is a parameter and the pattern of its values, in which "*" stands
// for any run of characters, slashes too.
type queryGlob struct {
	name  string
	value glob
}

// parseClause compiles a clause; absent is what no mention of methods means.
// With slashes, "%2F" may stand in its paths.
func parseClause(m policy.Match, absent methodSet, slashes, denies bool) (clause, error) {
	c := clause{methods: absent, pos: m.Pos, maxBody: int64(m.MaxBody)}
	if err := checkFields(policy.ProtocolHTTP, m, denies); err != nil {
		return clause{}, err
	}
	if m.Methods != nil {
		set, err := parseMethods(m.Methods)
		if err != nil {
			return clause{}, err
		}
		c.methods = set
	}
	if m.Methods != nil && len(m.Methods) == 0 {
		return clause{}, errors.New("empty list, which matches nothing")
	}
	for _, text := range m.Paths {
		g, err := parsePath(text, slashes)
		if err != nil {
			return clause{}, fmt.Errorf("path %q: %w", text, err)
		}
		c.paths = append(c.paths, g)
		c.loose = append(c.loose, g.loose())
		if split := strings.ReplaceAll(text, escapedSlash, "/"); denies && split != text {
			if g, err = parsePathGlob(split); err != nil {
				return clause{}, fmt.Errorf("path %q: %w", text, err)
			}
			c.paths = append(c.paths, g)
			c.loose = append(c.loose, g.loose())
		}
	}
	for _, name := range m.Headers {
		if !isToken(name) {
			return clause{}, fmt.Errorf("%q is not the name of a header field", name)
		}
		c.headers = append(c.headers, textproto.CanonicalMIMEHeaderKey(name))
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
	if !c.methods.has(r.Method) || len(c.paths) > 0 && !matchPath(c.paths, r.Path) || !c.hasHeaders(r) {
		return false
	}
	if c.maxBody > 0 && r.Length > c.maxBody {
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
	if !c.methods.has(r.Method) || len(c.paths) > 0 && !touchPath(c.paths, c.loose, r) || !c.hasHeaders(r) {
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
// servers do not tell parameters apart by case, and some take "x[]" and "x[a]" for
// more of x, so all spellings count, see IsParameter.
func (q *queryGlob) count(query url.Values) (matched, other int) {
	for name, values := range query {
		if !IsParameter(name, q.name) {
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

// hasHeaders tells whether the fields are there that the clause names.
func (c *clause) hasHeaders(r *Request) bool {
	for _, name := range c.headers {
		if len(r.Header[name]) == 0 {
			return false
		}
	}
	return true
}
