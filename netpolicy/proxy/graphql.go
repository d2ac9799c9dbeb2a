package proxy

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

var (
	// graphqlNames are the members of a request, and its parameters with GET.
	graphqlNames = []string{"query", "operationName", "variables", "extensions"}
	// graphqlStored are names under which servers look for a query that they hold.
	graphqlStored = []string{
		"id", "doc_id", "docid", "document_id", "documentid", "queryid", "query_id", "hash", "sha256hash", "persistedquery",
	}
	errStored = errors.New("GraphQL: the query is stored at the server, so that nobody here can judge it: send its text")
)

// graphql judges each operation of a request.
func (fl *flow) graphql() *refusal {
	if refused := fl.withoutOverride(); refused != nil {
		return refused
	}
	switch fl.out.Method {
	case http.MethodGet:
		return fl.graphqlGet()
	case http.MethodPost:
		if refused := fl.withoutParameters("GraphQL", slices.Concat(graphqlNames, graphqlStored, []string{"batch"})); refused != nil {
			return refused
		}
		return fl.graphqlPost()
	}
	return forbidden(fl.f.host, "GraphQL is spoken with POST and GET alone")
}

func (fl *flow) graphqlPost() *refusal {
	if kind, err := mediaType(fl.out.Header); err == nil && kind == "application/graphql" {
		return fl.graphqlText()
	}
	v, refused := fl.readJSON("application/json", "application/graphql+json")
	if refused != nil {
		return refused
	}
	batch := v.Items()
	if v.Kind() != strictjson.Array {
		batch = []strictjson.Value{v}
	}
	if len(batch) == 0 {
		return forbidden(fl.f.host, "GraphQL: an empty batch")
	}
	judged := make([]strictjson.Value, 0, len(batch))
	for _, request := range batch {
		request, operations, err := parseGraphQL(request)
		if err != nil {
			return forbidden(fl.f.host, err.Error())
		}
		if refused := fl.judgeOperations(operations); refused != nil {
			return refused
		}
		judged = append(judged, request)
	}
	out := judged[0]
	if v.Kind() == strictjson.Array {
		out = strictjson.ListOf(judged...)
	}
	fl.sendBody(out.Append(nil), "application/json")
	return nil
}

// graphqlText judges a body that is the query itself.
func (fl *flow) graphqlText() *refusal {
	body, refused := fl.readBody()
	if refused != nil {
		return refused
	}
	text, operations, err := parseDocument(string(body), "")
	if err != nil {
		return forbidden(fl.f.host, err.Error())
	}
	if refused := fl.judgeOperations(operations); refused != nil {
		return refused
	}
	fl.sendBody([]byte(text), "application/graphql")
	return nil
}

// graphqlGet judges a query in the URL. It cannot be a mutation: whoever sees a
// GET may repeat it.
func (fl *flow) graphqlGet() *refusal {
	if refused := fl.withoutBody(); refused != nil {
		return refused
	}
	members := []strictjson.Member{}
	query := url.Values{}
	for name, values := range fl.judged.Query {
		query[name] = values
		if isParameterOf(name, graphqlStored) {
			return forbidden(fl.f.host, errStored.Error())
		}
		if !isParameterOf(name, graphqlNames) {
			continue
		}
		if len(values) != 1 || !slices.Contains(graphqlNames, name) {
			return forbidden(fl.f.host, "GraphQL: a parameter is there twice or in another spelling")
		}
		v, refused := fl.graphqlParameter(name, values[0])
		if refused != nil {
			return refused
		}
		members = append(members, strictjson.Member{Name: name, Value: v})
	}
	request, operations, err := parseGraphQL(strictjson.ObjectOf(members...))
	if err != nil {
		return forbidden(fl.f.host, err.Error())
	}
	for _, o := range operations {
		if o.Kind == "mutation" {
			return forbidden(fl.f.host, "GraphQL: a mutation with GET")
		}
	}
	for _, name := range graphqlNames {
		delete(query, name)
		switch v := request.Get(name); v.Kind() {
		case strictjson.Invalid, strictjson.Null:
		case strictjson.String:
			query.Set(name, v.Text())
		default:
			query.Set(name, string(v.Append(nil)))
		}
	}
	fl.out.URL.RawQuery = query.Encode()
	return fl.judgeOperations(operations)
}

func isFolded(name string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// graphqlParameter gives a parameter as the member of a request in JSON.
func (fl *flow) graphqlParameter(name, text string) (strictjson.Value, *refusal) {
	if name == "query" || name == "operationName" {
		return strictjson.TextOf(text), nil
	}
	if text == "" {
		return strictjson.Value{}, forbidden(fl.f.host, "GraphQL: an empty parameter "+name)
	}
	return fl.parseJSON([]byte(text))
}

// parseGraphQL reads one request. It comes back as it may go out.
func parseGraphQL(v strictjson.Value) (strictjson.Value, []netpolicy.Operation, error) {
	if v.Kind() != strictjson.Object {
		return v, nil, errors.New("GraphQL: a request is not an object")
	}
	if err := v.Exact(graphqlNames...); err != nil {
		return v, nil, errors.New("GraphQL: " + err.Error())
	}
	for _, m := range v.Members() {
		switch {
		case isFolded(m.Name, graphqlStored):
			return v, nil, errStored
		case !slices.Contains(graphqlNames, m.Name):
			return v, nil, errors.New("GraphQL: a request has a member that nobody here knows")
		}
	}
	for _, name := range []string{"variables", "extensions"} {
		if k := v.Get(name).Kind(); k != strictjson.Object && k != strictjson.Null && k != strictjson.Invalid {
			return v, nil, errors.New("GraphQL: " + name + " is not an object")
		}
	}
	extensions := v.Get("extensions")
	if err := extensions.Exact("persistedQuery"); err != nil {
		return v, nil, errors.New("GraphQL: " + err.Error())
	}
	query, name := v.Get("query"), v.Get("operationName")
	switch {
	case query.Kind() == strictjson.Invalid || query.Kind() == strictjson.Null || query.IsString(""):
		return v, nil, errStored
	case query.Kind() != strictjson.String:
		return v, nil, errors.New("GraphQL: the query is not a string")
	case name.Kind() == strictjson.Null:
		name = strictjson.TextOf("")
	case name.Kind() != strictjson.String && name.Kind() != strictjson.Invalid:
		return v, nil, errors.New("GraphQL: operationName is not a string")
	}
	text, operations, err := parseDocument(query.Text(), name.Text())
	if err != nil {
		return v, nil, err
	}
	v = v.With("query", strictjson.TextOf(text))
	if has(extensions, "persistedQuery") {
		// The hash is of the text as the client wrote it, and a server that stored
		// it would be asked by hash alone next time.
		v = v.With("extensions", extensions.Without("persistedQuery"))
	}
	return v, operations, nil
}

// judgeOperations asks the claim about every operation of a document, also about
// those that operationName leaves out: servers differ in what they make of it.
func (fl *flow) judgeOperations(operations []netpolicy.Operation) *refusal {
	var all []string
	for _, o := range operations {
		all = append(all, o.Kind+" "+strings.Join(o.Fields, " "))
	}
	fl.operation(strings.Join(all, ", "))
	for _, o := range operations {
		d := fl.decision.Claim.Operation(o)
		if d.Verdict != netpolicy.Allow {
			return denied(fl.f.host, d)
		}
		if refused := fl.accept(d); refused != nil {
			return refused
		}
	}
	return nil
}
