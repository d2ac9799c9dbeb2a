package inference

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Request is what a client sent.
type Request struct {
	Method string
	// Path is in canonical form.
	Path  string
	Query url.Values
	// Header holds the fields by canonical name.
	Header map[string][]string
	// Body is the whole body. See Reads.
	Body []byte
}

// Call is a request that may be sent.
type Call struct {
	// Family is the provider in whose shape the client speaks; Local is Ollama's.
	Family Provider
	// Model is the one that was asked for, or "" where none is.
	Model string
	// Counted tells a call of a model from a look at what there is.
	Counted bool
	// Targets are the routes that may serve it, in the policy's order. Without
	// the inner name it is one.
	Targets []Target
}

// Target is one route for a call, with what is sent to it.
type Target struct {
	Route      string
	Pos        policy.Pos
	Credential string
	Host       netpolicy.Host
	Port       uint16
	Plain      bool
	Path       string
	Query      string
	Header     map[string][]string
	// Model is the one that is asked for there.
	Model string
	// Need is what the call may use at most.
	Need Need
	// HidesUsage tells that the usage at the end of the stream is ours: the
	// client did not ask for it, and does not get it.
	HidesUsage bool
	// Stream tells that the answer comes in pieces.
	Stream bool

	op       operation
	doc      strictjson.Value
	options  strictjson.Value // stream_options of the client
	limitsAt []string
	choices  int64
}

// Reads tells whether a request must be read to its end to be judged.
func Reads(method string) bool { return method == "POST" }

// Judge decides one request: to the route with this index, or, when it is
// negative, to the inner name. Exactly one result is nil.
func (s *Set) Judge(index int, q Request) (*Call, *Denial) {
	call, d := s.judge(index, q)
	if d != nil && d.Family == "" {
		d.Family = s.family(index, q)
	}
	return call, d
}

// family gives the shape in which a client can read a denial.
func (s *Set) family(index int, q Request) Provider {
	if s == nil || index >= len(s.routes) {
		return OpenAI
	}
	if index >= 0 {
		r := s.routes[index]
		if e, ok := r.at(q.Method, q.Path); ok {
			return e.family
		}
		return r.provider
	}
	if e, ok := inner(q.Method, q.Path, q.Header); ok {
		return e.family
	}
	return OpenAI
}

func (s *Set) judge(index int, q Request) (*Call, *Denial) {
	e, routes, d := s.find(index, q)
	if d != nil {
		return nil, d
	}
	query, d := forwardQuery(e, q.Query)
	if d != nil {
		return nil, d
	}
	f := &facts{op: e.op, model: e.model, choices: 1, least: 1}
	if Reads(q.Method) {
		if d = plainJSON(q.Header); d == nil {
			f, d = read(e, q.Body)
		}
		if d != nil {
			return nil, d
		}
		if d = s.circles(f); d != nil {
			return nil, d
		}
	}
	call := &Call{Family: e.family, Model: f.model, Counted: e.op.counted()}
	var first *Denial
	for _, r := range routes {
		t, d := s.target(r, e, f, query, q.Header, index < 0)
		if d != nil {
			first = cmp.Or(first, d.in(r))
			continue
		}
		call.Targets = append(call.Targets, t)
	}
	if len(call.Targets) > 0 {
		return call, nil
	}
	if index < 0 && len(routes) > 1 {
		first.Hint = "no other route of the policy allows it either"
	}
	return nil, first
}

// find gives the endpoint and the routes that have it.
func (s *Set) find(index int, q Request) (endpoint, []*route, *Denial) {
	if s == nil || index >= len(s.routes) {
		return endpoint{}, nil, denied("the policy has no such route for inference")
	}
	if index >= 0 {
		r := s.routes[index]
		e, ok := r.at(q.Method, q.Path)
		if !ok {
			return e, nil, denied("%s %s is no call of a model: the route allows nothing else on its host", q.Method, quote(q.Path)).in(r)
		}
		return e, []*route{r}, nil
	}
	e, ok := inner(q.Method, q.Path, q.Header)
	if !ok {
		return e, nil, denied("%s %s is no call of a model in any provider's shape", q.Method, quote(q.Path))
	}
	var fitting []*route
	for _, r := range s.routes {
		if e.fits(r.provider) {
			fitting = append(fitting, r)
		}
	}
	if e.op == opList && e.family == OpenAI && len(fitting) == 0 {
		// A list of models is asked for in the same way elsewhere.
		if e, ok = anthropicAt(q.Method, q.Path); ok {
			fitting = slices.DeleteFunc(slices.Clone(s.routes), func(r *route) bool { return r.provider != Anthropic })
		}
	}
	if len(fitting) == 0 {
		return e, nil, denied("no route of the policy speaks %s's shape, and nothing is translated", e.family)
	}
	return e, fitting, nil
}

// Serves gives the denial of a request's method and path, which is all that can
// be told before there is a body; nil when it is a call of a model.
func (s *Set) Serves(index int, method, path string) *Denial {
	_, _, d := s.find(index, Request{Method: method, Path: path})
	return d
}

// circles refuses a conversation that turns in circles, and one of which a part
// cannot be seen.
func (s *Set) circles(f *facts) *Denial {
	if s.stop.ExactFailure <= 0 && s.stop.NoProgress <= 0 {
		return nil
	}
	if f.stored != "" {
		d := denied("field %s refers to a part of the conversation that is not in the request, which hard_stop must see", quote(f.stored))
		d.Rule, d.Hint = "inference.hard_stop", "have the agent send the whole conversation (for OpenAI's Responses API: store: false)"
		return d
	}
	return circle(f.uses, s.stop)
}

// target compares the facts with a route.
func (s *Set) target(r *route, e endpoint, f *facts, query url.Values, header map[string][]string, viaInner bool) (Target, *Denial) {
	model := r.renamed(f.model)
	if d := r.checks(e, f, model); d != nil {
		return Target{}, d
	}
	path := r.path(e)
	if e.model != "" && model != e.model {
		if strings.ContainsAny(model, "/:") && e.family == Gemini {
			return Target{}, denied("model %s cannot stand in a path", quote(model))
		}
		path = strings.Replace(path, "/models/"+e.model, "/models/"+model, 1)
	}
	if viaInner || r.Credential != "" {
		query = maps.Clone(query)
		query.Del("key")
	}
	t := Target{
		Route: r.Name, Pos: r.Pos, Credential: r.Credential, Host: r.host, Port: uint16(r.Port), Plain: r.Plain, Path: path, Query: query.Encode(),
		Header: r.header(header, viaInner), Model: model, Stream: f.stream,
		op: e.op, doc: f.doc, limitsAt: f.outputAt, choices: f.choices,
	}
	if f.doc.Kind() == strictjson.Object {
		t.Header["Content-Type"] = []string{"application/json"}
		t.rewrite(e, f, model)
	}
	if !e.op.counted() {
		return t, nil
	}
	price, priced := s.price(model)
	switch money := s.budget.Money > 0 || s.budget.MoneyPerMinute > 0; {
	case money && !priced:
		return Target{}, denied("model %s has no price, which the budget in money needs", quote(model))
	case money && f.dearer != "" && !matchesAny(r.ServerTools, f.dearer):
		d := denied("field %s asks for a service at another price than that of the table, which the budget in money goes by", quote(f.dearer))
		d.Hint = "leave it out, or allow it in the route's \"server_tools\" with prices that fit it"
		return Target{}, d
	}
	t.Need = Need{Input: f.input, Price: price, Free: e.op.free()}
	if e.op.free() {
		return t, nil
	}
	t.Need.Choices, t.Need.Least = f.choices, f.least
	t.Need.Output = t.outputOf(f.output, int64(r.MaxOutputTokens), e)
	if t.Need.Output > 0 && (r.MaxOutputTokens > 0 || s.budget != (policy.Budget{})) && t.limitField() == "/max_tokens" {
		t.cap(t.Need.Output) // also in the one name that every server of this shape reads
	}
	if t.Need.Output > 0 && t.Need.Output < f.least {
		return Target{}, denied("the request needs at least %d tokens of output, the route allows %d", f.least, t.Need.Output)
	}
	return t, nil
}

// outputOf gives the most tokens that one answer may have, 0 when nobody says.
func (t *Target) outputOf(asked, most int64, e endpoint) int64 {
	switch {
	case !e.op.writes():
		t.Need.Choices = 0
		t.Need.Silent = true
		return 0
	case most > 0 && (asked == 0 || asked > most):
		t.cap(most)
		return most
	}
	return asked
}

// writes tells whether the answer is text that a model writes.
func (o operation) writes() bool {
	switch o {
	case opChat, opResponses, opCompletions, opMessages, opGenerate, opOllamaChat, opOllamaGenerate:
		return true
	}
	return false
}

// checks compares what is asked for with what the route allows.
func (r *route) checks(e endpoint, f *facts, model string) *Denial {
	if model != "" && !r.allows(model) {
		d := denied("model %s is not among those that the route allows", quote(model))
		d.Hint = "allow it in the route's \"models\""
		return d
	}
	if r.deployment != "" && model != "" && model != r.deployment {
		return malformed("the request names the model %s, but the route's path is for %s", quote(model), quote(r.deployment))
	}
	if len(f.remote) > 0 && !r.RemoteFetch {
		d := denied("the provider would fetch what %s names", quote(f.remote[0]))
		d.Hint = "send the content itself, or set \"remote_fetch\" on the route"
		return d
	}
	for _, tool := range append(f.tools, variants(model)...) {
		if !matchesAny(r.ServerTools, tool) {
			d := denied("%s is something that the provider runs or reads by itself", quote(tool))
			d.Hint = "allow it in the route's \"server_tools\", or switch it off in the agent"
			return d
		}
	}
	return nil
}

// variants are the parts of a model's name that switch on tools, or settings that
// are kept at the provider.
func variants(model string) (all []string) {
	if strings.HasSuffix(model, ":online") {
		all = append(all, "online")
	}
	if strings.Contains(model, "@preset/") {
		all = append(all, "preset")
	}
	return all
}

// plainJSON refuses bodies that are not JSON as it is.
func plainJSON(header map[string][]string) *Denial {
	for _, v := range header["Content-Encoding"] {
		if !strings.EqualFold(v, "identity") {
			return denied("the request's body is compressed (%s), so that it cannot be judged", quote(v))
		}
	}
	types := header["Content-Type"]
	if len(types) > 1 {
		return malformed("field Content-Type is there twice")
	}
	if len(types) == 0 || types[0] == "" {
		return nil
	}
	media, parameters, _ := strings.Cut(types[0], ";")
	charset := strings.ToLower(strings.ReplaceAll(parameters, " ", ""))
	if !strings.EqualFold(strings.TrimSpace(media), "application/json") || charset != "" && charset != "charset=utf-8" {
		return denied("the request's body is %s, not JSON in UTF-8", quote(types[0]))
	}
	return nil
}
