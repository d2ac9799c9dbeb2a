package inference

import (
	"fmt"
	"net/url"
	"strconv"
)

// Denial says why a request is not sent.
type Denial struct {
	// Malformed tells that the request could be read in two ways, or in none.
	Malformed bool
	// Budget tells that the run has used up what it may.
	Budget bool
	// Stop tells that the policy wants the run ended.
	Stop bool
	// Rule is the name of the route, or the policy path of what denies.
	Rule string
	// Reason says what was found, in lower case.
	Reason string
	// Hint is one thing the operator can do, or "".
	Hint string
	// Family is the provider in whose shape the client expects errors.
	Family Provider
}

func (d *Denial) Error() string { return d.Reason }

// malformed is the denial of a request without one meaning.
func malformed(format string, args ...any) *Denial {
	return &Denial{Malformed: true, Reason: fmt.Sprintf(format, args...)}
}

// denied is the denial of a request whose meaning no route allows.
func denied(format string, args ...any) *Denial {
	return &Denial{Reason: fmt.Sprintf(format, args...)}
}

// in names the route and completes the denial.
func (d *Denial) in(r *route) *Denial {
	if d != nil && d.Rule == "" {
		d.Rule = r.Name
	}
	return d
}

// quote shows what a client chose, within bounds.
func quote(s string) string {
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return strconv.QuoteToASCII(s)
}

// queries are the parameters that are understood, with the operations they
// belong to.
func forwardQuery(e endpoint, query url.Values) (url.Values, *Denial) {
	out := url.Values{}
	for name, values := range query {
		if len(values) != 1 {
			return nil, malformed("parameter %s is there twice", quote(name))
		}
		value := values[0]
		switch name {
		case "key":
			if e.family == Gemini {
				out[name] = values // dropped where it must not go, see target
			}
		case "alt":
			if e.family != Gemini || value != "sse" && value != "json" {
				return nil, denied("parameter alt=%s is not known here", quote(value))
			}
			out[name] = values
		case "beta":
			if e.family != Anthropic || value != "true" {
				return nil, denied("parameter beta=%s is not known here", quote(value))
			}
			out[name] = values
		case "api-version":
			out[name] = values
		case "limit", "after_id", "before_id", "pageSize", "pageToken", "after", "order":
			if e.op != opList {
				return nil, denied("parameter %s is not known here", quote(name))
			}
			out[name] = values
		case "model", "deployment", "engine":
			return nil, malformed("parameter %s names a model beside the one place that counts", quote(name))
		default:
			return nil, denied("parameter %s is not known here", quote(name))
		}
	}
	return out, nil
}
