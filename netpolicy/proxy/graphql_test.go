package proxy

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

func graphqlRule() policy.Rule {
	return policy.Rule{
		Protocol: policy.ProtocolGraphQL, AllowSet: true,
		Allow: []policy.Match{
			{Operations: []string{"query"}, Fields: []string{"repo*", "viewer", "secret"}},
			{Operations: []string{"mutation"}, Fields: []string{"addStar"}},
		},
		Deny: []policy.Match{{Fields: []string{"secret"}}},
	}
}

func graphqlBody(t *testing.T, query string, more ...string) string {
	t.Helper()
	b, err := json.Marshal(query)
	if err != nil {
		t.Fatal(err)
	}
	out := `{"query":` + string(b)
	for _, m := range more {
		out += "," + m
	}
	return out + "}"
}

// The fields at the root decide, whatever they are called and however they get
// there (corpus D88).
func TestGraphQL(t *testing.T) {
	w, s, c := messageWorld(t, graphqlRule())
	const json = "application/json"
	tests := []struct {
		name, body, kind string
		ok               bool
	}{
		{"query", graphqlBody(t, "{ repo { deleteRepo } }"), json, true},
		{"named", graphqlBody(t, "query A($n: Int = 3) { repository(n: $n, s: \"a\\nb\") @include(if: true) { x } }", `"variables":{"n":1}`, `"operationName":"A"`), json, true},
		{"mutation", graphqlBody(t, "mutation { addStar(id: 1) { id } }"), json, true},
		{"fragment", graphqlBody(t, "{ ...f } fragment f on Query { viewer { x } repo }"), json, true},
		{"batch", "[" + graphqlBody(t, "{ repo }") + "," + graphqlBody(t, "{ viewer }") + "]", json, true},
		{"several operations", graphqlBody(t, "query A { repo } query B { viewer }", `"operationName":"B"`), json, true},
		{"text", "query { repo }", "application/graphql", true},
		{"comment", graphqlBody(t, "{ repo # secret } \n }"), json, true},
		{"null for what is absent", graphqlBody(t, "{ repo }", `"operationName":null`, `"variables":null`, `"extensions":null`), json, true},
		{"known hash with its text", graphqlBody(t, "{ repo }", `"extensions":{"persistedQuery":{"version":1,"sha256Hash":"00"}}`), json, true},

		{"other field", graphqlBody(t, "{ users }"), json, false},
		{"field beside", graphqlBody(t, "{ repo users }"), json, false},
		{"denied field", graphqlBody(t, "{ repo secret }"), json, false},
		{"alias", graphqlBody(t, "mutation { addStar: deleteRepo { id } }"), json, false},
		{"alias of a denied field", graphqlBody(t, "{ repo: secret }"), json, false},
		{"other mutation", graphqlBody(t, "mutation { deleteRepo }"), json, false},
		{"fragment hides", graphqlBody(t, "{ repo ...f } fragment f on Query { secret }"), json, false},
		{"fragment in a fragment", graphqlBody(t, "{ ...a } fragment a on Q { repo ...b } fragment b on Q { secret }"), json, false},
		{"inline fragment", graphqlBody(t, "{ repo ... on Query { ... { secret } } }"), json, false},
		{"fragment on Mutation", graphqlBody(t, "{ repo ... on Mutation { deleteRepo } }"), json, false},
		{"cycle", graphqlBody(t, "{ ...a } fragment a on Q { repo ...b } fragment b on Q { ...a users }"), json, false},
		{"fragment missing", graphqlBody(t, "{ repo ...a }"), json, false},
		{"two fragments of one name", graphqlBody(t, "{ ...a } fragment a on Q { repo } fragment a on Q { secret }"), json, false},
		{"skipped", graphqlBody(t, "{ repo secret @skip(if: true) }"), json, false},
		{"introspection", graphqlBody(t, "{ repo __schema { types { name } } }"), json, false},
		{"type", graphqlBody(t, `{ __type(name: "X") { name } }`), json, false},
		{"subscription", graphqlBody(t, "subscription { repo }"), json, false},
		{"denied in a batch", "[" + graphqlBody(t, "{ repo }") + "," + graphqlBody(t, "{ users }") + "]", json, false},
		{"batch in a batch", "[[" + graphqlBody(t, "{ repo }") + "]]", json, false},
		{"empty batch", "[]", json, false},
		{"other operation denied", graphqlBody(t, "query A { repo } mutation B { deleteRepo }", `"operationName":"A"`), json, false},
		{"several without a name", graphqlBody(t, "query A { repo } query B { viewer }"), json, false},
		{"name of none", graphqlBody(t, "query A { repo }", `"operationName":"B"`), json, false},
		{"two of one name", graphqlBody(t, "query A { repo } query A { viewer }", `"operationName":"A"`), json, false},
		{"no operation", graphqlBody(t, "fragment f on Query { repo }"), json, false},
		{"schema", graphqlBody(t, "{ repo } type X { a: Int }"), json, false},
		{"line end ends the comment", graphqlBody(t, "{ repo # x\rsecret\n }"), json, false},
		{"unparsable", graphqlBody(t, "{ repo"), json, false},
		{"long", graphqlBody(t, "{"+strings.Repeat(" repo", 30_000)+"}"), json, false},
		{"deep", graphqlBody(t, strings.Repeat("{ repo ", 2000)+strings.Repeat("}", 2000)), json, false},
		{"hash alone", `{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"00"}}}`, json, false},
		{"hash and empty text", graphqlBody(t, "", `"extensions":{"persistedQuery":{"sha256Hash":"00"}}`), json, false},
		{"stored by id", `{"id":"abc"}`, json, false},
		{"id beside text", graphqlBody(t, "{ repo }", `"documentId":"x"`), json, false},
		{"query twice", `{"query":"{ repo }","query":"{ secret }"}`, json, false},
		{"query in two cases", `{"query":"{ repo }","Query":"{ secret }"}`, json, false},
		{"query as list", `{"query":["{ repo }"]}`, json, false},
		{"form", "query={repo}", "application/x-www-form-urlencoded", false},
		{"multipart", "--x", "multipart/form-data; boundary=x", false},
		{"text with a denied field", "{ secret }", "application/graphql", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.forget()
			resp, answer := send(t, c, "POST", "/graphql", tt.body, inJSON, tt.kind)
			r, got := s.last()
			if ok := resp.StatusCode == 200; ok != tt.ok || (r != nil) != tt.ok {
				t.Errorf("got status %d, arrived %v, want %v\n%s", resp.StatusCode, r != nil, tt.ok, answer)
			}
			if strings.Contains(got, "persistedQuery") || strings.Contains(got, "#") {
				t.Errorf("body: got %s, want neither hashes nor comments", got)
			}
		})
	}
	w.wantEvent("mutation", func(e audit.Event) bool { return e.Operation == "mutation addStar" && e.Verdict == audit.Allow })
	w.wantNoFault()
}

// A query in the URL is judged like any other, and is never a mutation.
func TestGraphQLInURL(t *testing.T) {
	_, s, c := messageWorld(t, graphqlRule())
	q := url.QueryEscape
	tests := []struct {
		name, method, query, body string
		ok                        bool
	}{
		{"query", "GET", "query=" + q("query A($n: Int) { repo(n: $n) }") + "&variables=" + q(`{"n": 1}`) + "&operationName=A&token=t", "", true},
		{"denied field", "GET", "query=" + q("{ secret }"), "", false},
		{"mutation", "GET", "query=" + q("mutation { addStar }"), "", false},
		{"twice", "GET", "query=" + q("{ repo }") + "&query=" + q("{ secret }"), "", false},
		{"other case", "GET", "query=" + q("{ repo }") + "&Query=" + q("{ secret }"), "", false},
		{"list", "GET", "query=" + q("{ repo }") + "&query[]=" + q("{ secret }"), "", false},
		{"id in a list", "GET", "query=" + q("{ repo }") + "&id%5B0%5D=3", "", false},
		{"list beside the body", "POST", "query[]=" + q("{ secret }"), `{"query":"{ repo }"}`, false},
		{"hash", "GET", "extensions=" + q(`{"persistedQuery":{"sha256Hash":"00"}}`), "", false},
		{"id", "GET", "query=" + q("{ repo }") + "&doc_id=3", "", false},
		{"nothing", "GET", "", "", false},
		{"body too", "GET", "query=" + q("{ repo }"), `{"query":"{ repo }"}`, false},
		{"URL beside the body", "POST", "query=" + q("{ secret }"), `{"query":"{ repo }"}`, false},
		{"operation beside the body", "POST", "operationName=A", `{"query":"query A { repo }"}`, false},
		{"put", "PUT", "", `{"query":"{ repo }"}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.forget()
			resp, answer := send(t, c, tt.method, "/graphql?"+tt.query, tt.body)
			r, _ := s.last()
			if ok := resp.StatusCode == 200; ok != tt.ok || (r != nil) != tt.ok {
				t.Fatalf("got status %d, arrived %v, want %v\n%s", resp.StatusCode, r != nil, tt.ok, answer)
			}
			if r != nil {
				got := r.URL.Query()
				if got.Get("query") != "query A ( $ n : Int ) { repo ( n : $ n ) } " || got.Get("variables") != `{"n":1}` || got.Get("token") != "t" || len(got) != 4 {
					t.Errorf("query: got %v", got)
				}
			}
		})
	}
}
