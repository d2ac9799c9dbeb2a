package inference

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

func compile(t testing.TB, in policy.Inference) *Set {
	t.Helper()
	s, err := Compile(in)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// providers has one route of each kind.
func providers() policy.Inference {
	return policy.Inference{Routes: []policy.Route{
		{Name: "openai", Provider: "openai-compatible", Host: "api.openai.com", Models: []string{"gpt-5*"}, Credential: "key"},
		{Name: "claude", Provider: "anthropic", Host: "api.anthropic.com", Models: []string{"claude-*"}, Credential: "key"},
		{Name: "gemini", Provider: "gemini", Host: "generativelanguage.googleapis.com", Models: []string{"gemini-*"}, Credential: "key"},
		{Name: "local", Provider: "local", Host: "127.0.0.1", Port: 11434, Plain: true},
		{Name: "router", Provider: "openai-compatible", Host: "openrouter.ai", Base: "/api/v1", Models: []string{"nousresearch/*"}},
	}}
}

func post(path, body string) Request {
	return Request{Method: "POST", Path: path, Body: []byte(body), Header: map[string][]string{}}
}

func get(path string) Request {
	return Request{Method: "GET", Path: path, Header: map[string][]string{}}
}

const (
	inChat     = `{"model":"gpt-5-mini","messages":[{"role":"user","content":"hi"}]}`
	inMessages = `{"model":"claude-x","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}`
	inGenerate = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
	inResponse = `{"model":"gpt-5","input":"hi"}`
	inOllama   = `{"model":"llama3","messages":[{"role":"user","content":"hi"}]}`
)

// A route's host answers calls of models and nothing else (corpus D91).
func TestEndpoints(t *testing.T) {
	s := compile(t, providers())
	cases := []struct {
		name   string
		route  int
		q      Request
		want   string // the path that goes out, or "" for a denial
		family Provider
	}{
		{"chat", 0, post("/v1/chat/completions", inChat), "/v1/chat/completions", OpenAI},
		{"responses", 0, post("/v1/responses", inResponse), "/v1/responses", OpenAI},
		{"completions", 0, post("/v1/completions", `{"model":"gpt-5","prompt":"a"}`), "/v1/completions", OpenAI},
		{"embeddings", 0, post("/v1/embeddings", `{"model":"gpt-5e","input":["a"]}`), "/v1/embeddings", OpenAI},
		{"models", 0, get("/v1/models"), "/v1/models", OpenAI},
		{"one model", 0, get("/v1/models/gpt-5"), "/v1/models/gpt-5", OpenAI},
		{"one denied model", 0, get("/v1/models/o1"), "", OpenAI},
		{"files", 0, post("/v1/files", inChat), "", OpenAI},
		{"delete a model", 0, Request{Method: "DELETE", Path: "/v1/models/gpt-5"}, "", OpenAI},
		{"another base", 0, post("/v2/chat/completions", inChat), "", OpenAI},
		{"no base", 0, post("/chat/completions", inChat), "", OpenAI},
		{"admin", 0, get("/admin"), "", OpenAI},
		{"images", 0, post("/v1/images/generations", inChat), "", OpenAI},
		{"stored response", 0, get("/v1/responses/resp_1"), "", OpenAI},
		{"messages", 1, post("/v1/messages", inMessages), "/v1/messages", Anthropic},
		{"count tokens", 1, post("/v1/messages/count_tokens", inMessages), "/v1/messages/count_tokens", Anthropic},
		{"anthropic models", 1, get("/v1/models"), "/v1/models", Anthropic},
		{"batches", 1, post("/v1/messages/batches", inMessages), "", Anthropic},
		{"anthropic files", 1, get("/v1/files"), "", Anthropic},
		{"generate", 2, post("/v1beta/models/gemini-3:generateContent", inGenerate), "/v1beta/models/gemini-3:generateContent", Gemini},
		{"stream", 2, post("/v1beta/models/gemini-3:streamGenerateContent", inGenerate), "/v1beta/models/gemini-3:streamGenerateContent", Gemini},
		{"v1", 2, post("/v1/models/gemini-3:countTokens", inGenerate), "/v1/models/gemini-3:countTokens", Gemini},
		{"embed", 2, post("/v1beta/models/gemini-e:embedContent", `{"content":{"parts":[{"text":"a"}]}}`), "/v1beta/models/gemini-e:embedContent", Gemini},
		{"gemini models", 2, get("/v1beta/models"), "/v1beta/models", Gemini},
		{"cached contents", 2, post("/v1beta/cachedContents", inGenerate), "", Gemini},
		{"tuned model", 2, post("/v1beta/tunedModels/x:generateContent", inGenerate), "", Gemini},
		{"denied gemini", 2, post("/v1beta/models/other:generateContent", inGenerate), "", Gemini},
		{"long running", 2, post("/v1beta/models/gemini-3:predictLongRunning", inGenerate), "", Gemini},
		{"ollama chat", 3, post("/api/chat", inOllama), "/api/chat", Local},
		{"ollama tags", 3, get("/api/tags"), "/api/tags", Local},
		{"ollama pull", 3, post("/api/pull", `{"model":"x"}`), "", Local},
		{"ollama delete", 3, Request{Method: "DELETE", Path: "/api/delete"}, "", Local},
		{"local chat", 3, post("/v1/chat/completions", inOllama), "/v1/chat/completions", OpenAI},
		{"base", 4, post("/api/v1/chat/completions", `{"model":"nousresearch/hermes-4","messages":[]}`), "/api/v1/chat/completions", OpenAI},
		{"keys", 4, post("/api/v1/keys", `{"name":"x"}`), "", OpenAI},
		{"no such route", 9, get("/v1/models"), "", OpenAI},
		{"inner chat", -1, post("/v1/chat/completions", inChat), "/v1/chat/completions", OpenAI},
		{"inner by model", -1, post("/v1/chat/completions", `{"model":"nousresearch/hermes-4","messages":[]}`), "/v1/chat/completions", OpenAI},
		{"inner messages", -1, post("/v1/messages", inMessages), "/v1/messages", Anthropic},
		{"inner gemini", -1, post("/v1beta/models/gemini-3:generateContent", inGenerate), "/v1beta/models/gemini-3:generateContent", Gemini},
		{"inner ollama", -1, post("/api/chat", inOllama), "/api/chat", Local},
		{"inner other", -1, get("/admin"), "", OpenAI},
		{"inner models", -1, get("/v1/models"), "/v1/models", OpenAI},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			call, d := s.Judge(c.route, c.q)
			switch {
			case d != nil && c.want != "":
				t.Fatalf("got denied: %s, want %s", d.Reason, c.want)
			case d != nil:
				if d.Family != c.family || d.Reason == "" {
					t.Errorf("got %+v, want a reason in the shape of %s", d, c.family)
				}
			case c.want == "":
				t.Fatalf("got allowed to %s, want a denial", call.Targets[0].Path)
			case call.Targets[0].Path != c.want && c.route >= 0 || call.Family != c.family:
				t.Errorf("got %s in the shape of %s, want %s in that of %s", call.Targets[0].Path, call.Family, c.want, c.family)
			}
		})
	}
}

// At the inner name the routes that fit are tried in order, each at its own path.
func TestInnerTargets(t *testing.T) {
	s := compile(t, providers())
	call, d := s.Judge(-1, post("/v1/chat/completions", `{"model":"nousresearch/hermes-4","messages":[]}`))
	if d != nil {
		t.Fatal(d)
	}
	var got []string
	for _, target := range call.Targets {
		got = append(got, target.Route+" "+target.Host.String()+target.Path)
	}
	want := []string{"local 127.0.0.1/v1/chat/completions", "router openrouter.ai/api/v1/chat/completions"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	none := providers()
	none.Routes = none.Routes[:3]
	if _, d := compile(t, none).Judge(-1, post("/v1/chat/completions", `{"model":"llama","messages":[]}`)); d == nil || !strings.Contains(d.Reason, `"llama"`) {
		t.Errorf("got %v, want a denial that names the model", d)
	}
	if _, d := compile(t, none).Judge(-1, post("/api/chat", inOllama)); d == nil || !strings.Contains(d.Reason, "translated") {
		t.Errorf("got %v, want a denial, since no route speaks Ollama's shape", d)
	}
}

// The model has one place; whatever could name another is refused (corpus D89).
func TestModelSmuggling(t *testing.T) {
	s := compile(t, providers())
	deployment := compile(t, policy.Inference{Routes: []policy.Route{{
		Provider: "openai-compatible", Host: "x.openai.azure.com", Base: "/openai/deployments/gpt-5", Models: []string{"gpt-5*"},
	}}})
	if _, d := s.Judge(0, post("/v1/chat/completions", inChat)); d != nil {
		t.Fatalf("control: got denied: %s", d.Reason)
	}
	cases := []struct {
		name      string
		s         *Set
		route     int
		q         Request
		malformed bool
	}{
		{"denied", s, 0, post("/v1/chat/completions", `{"model":"o1-pro","messages":[]}`), false},
		{"upper case", s, 0, post("/v1/chat/completions", `{"model":"GPT-5","messages":[]}`), false},
		{"duplicate", s, 0, post("/v1/chat/completions", `{"model":"gpt-5","model":"o1","messages":[]}`), true},
		{"case variant", s, 0, post("/v1/chat/completions", `{"model":"gpt-5","Model":"o1","messages":[]}`), true},
		{"long s", s, 0, post("/v1/chat/completions", `{"model":"gpt-5","meſſages":[],"messages":[]}`), true},
		{"trailing space", s, 0, post("/v1/chat/completions", `{"model":"gpt-5 ","messages":[]}`), true},
		{"leading space", s, 0, post("/v1/chat/completions", `{"model":" gpt-5","messages":[]}`), true},
		{"NUL", s, 0, post("/v1/chat/completions", `{"model":"gpt-5\u0000","messages":[]}`), true},
		{"look-alike", s, 0, post("/v1/chat/completions", `{"model":"gpt-5\u200b","messages":[]}`), true},
		{"list", s, 0, post("/v1/chat/completions", `{"model":["gpt-5","o1"],"messages":[]}`), true},
		{"missing", s, 0, post("/v1/chat/completions", `{"messages":[]}`), true},
		{"null", s, 0, post("/v1/chat/completions", `{"model":null,"messages":[]}`), true},
		{"extra body", s, 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"extra_body":{"model":"o1"}}`), true},
		{"fallbacks", s, 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"models":["o1"]}`), true},
		{"another server", s, 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"api_base":"https://evil.example.org"}`), true},
		{"trailing text", s, 0, post("/v1/chat/completions", inChat+`{"model":"o1"}`), true},
		{"parameter", s, 0, Request{Method: "POST", Path: "/v1/chat/completions", Query: url.Values{"model": {"o1"}}, Body: []byte(inChat)}, true},
		{"gemini body", s, 2, post("/v1beta/models/gemini-3:generateContent", `{"model":"models/other","contents":[]}`), true},
		{"gemini batch", s, 2, post("/v1beta/models/gemini-e:batchEmbedContents", `{"requests":[{"model":"models/other","content":{}}]}`), true},
		{"gemini nested", s, 2, post("/v1beta/models/gemini-3:countTokens", `{"generateContentRequest":{"model":"models/other"}}`), true},
		{"gemini both spellings", s, 2, post("/v1beta/models/gemini-3:generateContent", `{"contents":[],"generationConfig":{},"generation_config":{}}`), true},
		{"gemini path", s, 2, post("/v1beta/models/gemini-3%2F..%2Fother:generateContent", inGenerate), false},
		{"deployment", deployment, 0, post("/openai/deployments/gpt-5/chat/completions", `{"model":"gpt-5-mini","messages":[]}`), true},
		{"stored prompt", s, 0, post("/v1/responses", `{"model":"gpt-5","prompt":{"id":"p"},"input":"x"}`), false},
		{"background", s, 0, post("/v1/responses", `{"model":"gpt-5","background":true,"input":"x"}`), true},
		{"not json", s, 0, post("/v1/chat/completions", `model=gpt-5`), true},
		{"form", s, 0, Request{Method: "POST", Path: "/v1/chat/completions", Header: map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}}, Body: []byte(inChat)}, false},
		{"compressed", s, 0, Request{Method: "POST", Path: "/v1/chat/completions", Header: map[string][]string{"Content-Encoding": {"zstd"}}, Body: []byte(inChat)}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			call, d := c.s.Judge(c.route, c.q)
			if d == nil {
				t.Fatalf("got %s, want a denial", call.Targets[0].Body(0))
			}
			if d.Malformed != c.malformed {
				t.Errorf("got malformed %v (%s), want %v", d.Malformed, d.Reason, c.malformed)
			}
		})
	}
}

// What goes out is written anew from what was judged, with the renamed model.
func TestRewriting(t *testing.T) {
	s := compile(t, policy.Inference{Routes: []policy.Route{
		{Provider: "openai-compatible", Host: "a.example.org", Models: []string{"big"}, Rename: map[string]string{"gpt-4": "big"}},
		{Provider: "gemini", Host: "g.example.org", Rename: map[string]string{"pro": "flash"}},
	}})
	call, d := s.Judge(0, post("/v1/chat/completions", "{\n \"stream\" : true, \"model\":\"\\u0067pt-4\", \"messages\":[ ] }"))
	if d != nil {
		t.Fatal(d)
	}
	target := call.Targets[0]
	want := `{"stream":true,"model":"big","messages":[],"stream_options":{"include_usage":true}}`
	if got := string(target.Body(0)); got != want || target.Model != "big" || call.Model != "gpt-4" || !target.HidesUsage {
		t.Errorf("got %s %q %q %v, want %s", got, target.Model, call.Model, target.HidesUsage, want)
	}
	call, d = s.Judge(1, post("/v1beta/models/pro:batchEmbedContents", `{"requests":[{"model":"models/pro","content":{"parts":[{"text":"a"}]}}]}`))
	if d != nil {
		t.Fatal(d)
	}
	target = call.Targets[0]
	if got := string(target.Body(0)); !strings.Contains(got, `"models/flash"`) || target.Path != "/v1beta/models/flash:batchEmbedContents" {
		t.Errorf("got %s to %s, want the model renamed in both", got, target.Path)
	}
	if _, d := s.Judge(0, post("/v1/chat/completions", `{"model":"other","messages":[]}`)); d == nil {
		t.Error("got a model allowed that is neither listed nor renamed")
	}
}

// Only fields on a list reach a provider (corpus D92).
func TestHeaders(t *testing.T) {
	in := providers()
	in.Routes[0].Headers = []string{"Openai-Project", "Cookie2"}
	in.Routes[1].ServerTools = nil
	s := compile(t, in)
	header := map[string][]string{
		"Authorization": {"Bearer placeholder"}, "X-Api-Key": {"k"}, "X-Goog-Api-Key": {"k"}, "Api-Key": {"k"}, "Cookie": {"a=b"},
		"Openai-Organization": {"org"}, "Openai-Project": {"p"}, "Accept": {"*/*"}, "User-Agent": {"sdk"}, "X-Stainless-Lang": {"python"},
		"Accept-Encoding": {"gzip, br"}, "X-Forwarded-Authorization": {"x"}, "Anthropic-Version": {"2023-06-01"},
		"Anthropic-Beta": {"interleaved-thinking-2025-05-14,mcp-client-2025-04-04", "web-fetch-2025-09-10,MCP-client-2025-04-04"}, "Content-Type": {"application/json; charset=utf-8"},
	}
	names := func(route int, q Request) []string {
		q.Header = header
		call, d := s.Judge(route, q)
		if d != nil {
			t.Fatal(d)
		}
		var all []string
		for name, values := range call.Targets[0].Header {
			all = append(all, name+"="+strings.Join(values, "|"))
		}
		slices.Sort(all)
		return all
	}
	common := []string{"Accept-Encoding=identity", "Accept=*/*", "Anthropic-Version=2023-06-01", "Content-Type=application/json", "User-Agent=sdk", "X-Stainless-Lang=python"}
	for _, c := range []struct {
		name  string
		route int
		q     Request
		more  []string
	}{
		{"credential", 0, post("/v1/chat/completions", inChat), []string{"Openai-Project=p"}},
		{"anthropic", 1, post("/v1/messages", inMessages), []string{"Anthropic-Beta=interleaved-thinking-2025-05-14"}},
		{"own key", 4, post("/api/v1/chat/completions", `{"model":"nousresearch/h","messages":[]}`), []string{"Authorization=Bearer placeholder", "X-Api-Key=k", "X-Goog-Api-Key=k", "Api-Key=k"}},
		{"inner name", -1, post("/v1/chat/completions", `{"model":"nousresearch/h","messages":[]}`), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := append(slices.Clone(common), c.more...)
			slices.Sort(want)
			if got := names(c.route, c.q); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// A denied model never leaves, whatever the request looks like.
func FuzzJudge(f *testing.F) {
	s, err := Compile(providers())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{inChat, inMessages, inGenerate, inResponse, inOllama, `{"model":"gpt-5","Model":"o1"}`, `{"requests":[{"model":"models/x"}]}`} {
		for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1beta/models/gemini-3:generateContent", "/api/chat"} {
			f.Add(-1, path, []byte(seed))
			f.Add(0, path, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, index int, path string, body []byte) {
		call, d := s.Judge(max(index%5, -1), Request{Method: "POST", Path: path, Body: body})
		if (call == nil) == (d == nil) {
			t.Fatalf("got %v and %v, want one of them", call, d)
		}
		if d != nil {
			return
		}
		for i := range call.Targets {
			target := &call.Targets[i]
			r := s.routes[slices.IndexFunc(s.routes, func(r *route) bool { return r.Name == target.Route })]
			out, err := strictjson.Parse(target.Body(1000))
			if err != nil {
				t.Fatalf("what goes out is not JSON: %v", err)
			}
			sent := out.Get("model").Text()
			if r.provider == Gemini {
				name, _, _ := strings.Cut(strings.TrimPrefix(target.Path, "/v1beta/models/"), ":")
				name = strings.TrimPrefix(name, "/v1/models/")
				if in := strings.TrimPrefix(sent, "models/"); in != "" && in != name {
					t.Fatalf("got %q in the body of a request for %q", in, name)
				}
				sent = name
			}
			if !r.allows(sent) || sent != target.Model {
				t.Fatalf("got model %q sent to %s, want one that is allowed", sent, r.Name)
			}
			for _, m := range out.Members() {
				if strings.EqualFold(m.Name, "model") && m.Name != "model" {
					t.Fatalf("got a second name for the model: %q", m.Name)
				}
			}
		}
	})
}

// A key in the query goes nowhere but to the host that the client chose.
func TestKeyInQuery(t *testing.T) {
	in := providers()
	q := get("/v1beta/models")
	q.Query = url.Values{"key": {"k"}, "pageSize": {"5"}}
	for name, c := range map[string]struct {
		route      int
		credential string
		want       string
	}{
		"own key":    {2, "", "key=k&pageSize=5"},
		"credential": {2, "key", "pageSize=5"},
		"inner name": {-1, "", "pageSize=5"},
	} {
		in.Routes[2].Credential = c.credential
		call, d := compile(t, in).Judge(c.route, q)
		if d != nil {
			t.Fatal(d)
		}
		if got := call.Targets[0].Query; got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
