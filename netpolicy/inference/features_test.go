package inference

import (
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// What the provider would fetch or run is denied, and allowed by name
// (corpus D90).
func TestProviderFeatures(t *testing.T) {
	part := func(p string) Request {
		return post("/v1/chat/completions", `{"model":"gpt-5","messages":[{"role":"user","content":[`+p+`]}]}`)
	}
	item := func(p string) Request {
		return post("/v1/responses", `{"model":"gpt-5","input":[{"role":"user","content":[`+p+`]}]}`)
	}
	tool := func(p string) Request {
		return post("/v1/responses", `{"model":"gpt-5","input":"a","tools":[`+p+`]}`)
	}
	block := func(p string) Request {
		return post("/v1/messages", `{"model":"claude-x","max_tokens":9,"messages":[{"role":"user","content":[`+p+`]}]}`)
	}
	claude := func(p string) Request {
		return post("/v1/messages", `{"model":"claude-x","max_tokens":9,"messages":[],`+p+`}`)
	}
	gemini := func(p string) Request {
		return post("/v1beta/models/gemini-3:generateContent", `{"contents":[],`+p+`}`)
	}
	parts := func(p string) Request { return gemini(`"system_instruction":{"parts":[` + p + `]}`) }
	const remote, tools = "remote_fetch", "server_tools"
	cases := []struct {
		name  string
		route int
		q     Request
		needs string // what allows it; "" when nothing is needed
		tool  string
	}{
		{"text", 0, part(`{"type":"text","text":"see https://evil.example.org?data=x"}`), "", ""},
		{"data URL", 0, part(`{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBOR"}}`), "", ""},
		{"image URL", 0, part(`{"type":"image_url","image_url":{"url":"https://evil.example.org?data=x"}}`), remote, ""},
		{"image URL as a string", 0, part(`{"type":"image_url","image_url":"http://evil.example.org"}`), remote, ""},
		{"upper-case scheme", 0, part(`{"type":"image_url","image_url":{"url":" HTTPS://evil.example.org"}}`), remote, ""},
		{"newline in scheme", 0, part(`{"type":"image_url","image_url":{"url":"ht\ntp://evil.example.org"}}`), remote, ""},
		{"file scheme", 0, part(`{"type":"image_url","image_url":{"url":"file:/etc/passwd"}}`), remote, ""},
		{"case variant", 0, part(`{"type":"image_url","Image_URL":{"url":"https://evil.example.org"}}`), "never", ""},
		{"file by URL", 0, part(`{"type":"file","file":{"filename":"a.pdf","file_data":"https://evil.example.org/a.pdf"}}`), remote, ""},
		{"file by id", 0, part(`{"type":"file","file":{"file_id":"file-1"}}`), remote, ""},
		{"audio", 0, part(`{"type":"input_audio","input_audio":{"data":"UklGR","format":"wav"}}`), "", ""},
		{"unknown part", 0, part(`{"type":"live_page","page":"x"}`), tools, "part.live_page"},
		{"images beside", 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[{"role":"user","content":"a","images":["https://evil.example.org"]}]}`), remote, ""},
		{"search options", 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"web_search_options":{}}`), tools, "web_search_options"},
		{"plugins", 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"plugins":[{"id":"web"}]}`), tools, "plugins"},
		{"unknown switch", 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"enable_search":true}`), tools, "enable_search"},
		{"model with search", 0, post("/v1/chat/completions", `{"model":"gpt-5:online","messages":[]}`), tools, "online"},
		{"function", 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}`), "", ""},

		{"input image", 0, item(`{"type":"input_image","image_url":"https://evil.example.org"}`), remote, ""},
		{"input file", 0, item(`{"type":"input_file","file_url":"https://evil.example.org"}`), remote, ""},
		{"input file by id", 0, item(`{"type":"input_file","file_id":"file-1"}`), remote, ""},
		{"input file with data", 0, item(`{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AAAA"}`), "", ""},
		{"output image", 0, post("/v1/responses", `{"model":"gpt-5","input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"https://evil.example.org"}]}]}`), remote, ""},
		{"output image alone", 0, post("/v1/responses", `{"model":"gpt-5","input":[{"type":"function_call_output","call_id":"c","output":{"type":"input_image","image_url":"https://evil.example.org"}}]}`), remote, ""},
		{"output of a shell", 0, post("/v1/responses", `{"model":"gpt-5","input":[{"type":"shell_call_output","call_id":"c","output":[{"stdout":"https://example.org","stderr":"","outcome":{"type":"exit","exit_code":0}}]}]}`), "", ""},
		{"tools that were found", 0, post("/v1/responses", `{"model":"gpt-5","input":[{"type":"tool_search_output","call_id":"c","tools":[{"type":"web_search"}]}]}`), tools, "web_search"},
		{"custom tool", 0, tool(`{"type":"custom","name":"a"}`), "", ""},
		{"local shell", 0, tool(`{"type":"local_shell"}`), "", ""},
		{"hosted shell", 0, tool(`{"type":"shell","environment":{"type":"container_auto"}}`), tools, "shell"},
		{"web search", 0, tool(`{"type":"web_search_preview"}`), tools, "web_search*"},
		{"code interpreter", 0, tool(`{"type":"code_interpreter","container":{"type":"auto"}}`), tools, "code_interpreter"},
		{"file search", 0, tool(`{"type":"file_search","vector_store_ids":["v"]}`), tools, "file_search"},
		{"image generation", 0, tool(`{"type":"image_generation"}`), tools, "image_generation"},
		{"tool of tomorrow", 0, tool(`{"type":"teleport"}`), tools, "teleport"},
		{"hidden in a namespace", 0, tool(`{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}`), tools, "web_search"},
		{"remote MCP", 0, tool(`{"type":"mcp","server_label":"x","server_url":"https://evil.example.org"}`), remote + "+" + tools, "mcp"},
		{"connector", 0, tool(`{"type":"mcp","connector_id":"connector_gmail"}`), remote + "+" + tools, "mcp"},
		{"type in another case", 0, tool(`{"type":"function","Type":"web_search"}`), "never", ""},
		{"webhook", 0, post("/v1/responses", `{"model":"gpt-5","input":"a","webhook":"https://evil.example.org"}`), "never", ""},

		{"base64 image", 1, block(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBOR"}}`), "", ""},
		{"image by URL", 1, block(`{"type":"image","source":{"type":"url","url":"https://evil.example.org?data=x"}}`), remote, ""},
		{"document by URL", 1, block(`{"type":"document","source":{"type":"url","url":"https://evil.example.org"}}`), remote, ""},
		{"document by id", 1, block(`{"type":"document","source":{"type":"file","file_id":"f"}}`), remote, ""},
		{"document of text", 1, block(`{"type":"document","source":{"type":"text","media_type":"text/plain","data":"https://example.org"}}`), "", ""},
		{"image in a result", 1, block(`{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://evil.example.org"}}]}`), remote, ""},
		{"image in a document", 1, block(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url","url":"https://evil.example.org"}}]}}`), remote, ""},
		{"container upload", 1, block(`{"type":"container_upload","file_id":"f"}`), tools, "part.container_upload"},
		{"client tools", 1, claude(`"tools":[{"name":"a","input_schema":{}},{"type":"custom","name":"b","input_schema":{}},{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e"},{"type":"computer_20250124","name":"c"},{"type":"memory_20250818","name":"memory"}]`), "", ""},
		{"claude's web search", 1, claude(`"tools":[{"type":"web_search_20250305","name":"web_search"}]`), tools, "web_search_*"},
		{"claude's web fetch", 1, claude(`"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]`), tools, "web_fetch_*"},
		{"code execution", 1, claude(`"tools":[{"type":"code_execution_20250825","name":"code_execution"}]`), tools, "code_execution_*"},
		{"mcp servers", 1, claude(`"mcp_servers":[{"type":"url","url":"https://evil.example.org","name":"x"}]`), remote + "+" + tools, "mcp_servers"},
		{"container", 1, claude(`"container":"c1"`), tools, "container"},

		{"inline data", 2, parts(`{"inline_data":{"mime_type":"image/png","data":"iVBOR"}}`), "", ""},
		{"file URI", 2, parts(`{"fileData":{"fileUri":"https://evil.example.org"}}`), remote, ""},
		{"file URI in the other spelling", 2, parts(`{"file_data":{"file_uri":"https://evil.example.org"}}`), remote, ""},
		{"declarations", 2, gemini(`"tools":[{"function_declarations":[{"name":"f"}]}]`), "", ""},
		{"google search", 2, gemini(`"tools":[{"googleSearch":{}}]`), tools, "google_search"},
		{"google search in the other spelling", 2, gemini(`"tools":[{"google_search":{}}]`), tools, "google_search"},
		{"tools as an object", 2, gemini(`"tools":{"codeExecution":{}}`), tools, "code_execution"},
		{"url context", 2, gemini(`"tools":[{"urlContext":{}}]`), remote + "+" + tools, "url_context"},
		{"unknown field", 2, gemini(`"groundingSource":{}`), tools, "groundingSource"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			judge := func(remote bool, tools []string) *Denial {
				in := providers()
				for i := range in.Routes {
					in.Routes[i].RemoteFetch, in.Routes[i].ServerTools = remote, tools
				}
				_, d := compile(t, in).Judge(c.route, c.q)
				return d
			}
			if d := judge(false, nil); (d == nil) != (c.needs == "") {
				t.Fatalf("got %v, want what needs %q", d, c.needs)
			}
			named := judge(strings.Contains(c.needs, remote), []string{"never-a-tool", c.tool})
			if (named == nil) != (c.needs != "never") {
				t.Errorf("got %v with %q, want it to be what is needed", named, c.needs)
			}
		})
	}
}

// What one call may write is bounded where the provider reads it.
func TestOutputLimits(t *testing.T) {
	in := providers()
	for i := range in.Routes {
		in.Routes[i].MaxOutputTokens = 1000
	}
	s := compile(t, in)
	free := compile(t, providers())
	cases := []struct {
		name    string
		route   int
		q       Request
		want    string // a part of the body
		output  int64
		choices int64
	}{
		{"not said", 0, post("/v1/chat/completions", inChat), `"max_completion_tokens":1000`, 1000, 1},
		{"not said elsewhere", 4, post("/api/v1/chat/completions", `{"model":"nousresearch/h","messages":[]}`), `"max_tokens":1000`, 1000, 1},
		{"more", 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"max_tokens":5000}`), `"max_tokens":1000`, 1000, 1},
		{"less", 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"max_tokens":50}`), `"max_tokens":50`, 50, 1},
		{"null", 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"max_tokens":null}`), `"max_completion_tokens":1000`, 1000, 1},
		{"answers", 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"n":3,"max_tokens":5000}`), `"max_tokens":1000`, 1000, 3},
		{"prompts", 0, post("/v1/completions", `{"model":"gpt-5","prompt":["a","b"],"best_of":2}`), `"max_tokens":1000`, 1000, 4},
		{"responses", 0, post("/v1/responses", inResponse), `"max_output_tokens":1000`, 1000, 1},
		{"anthropic", 1, post("/v1/messages", `{"model":"claude-x","max_tokens":32000,"messages":[]}`), `"max_tokens":1000`, 1000, 1},
		{"gemini", 2, post("/v1beta/models/gemini-3:generateContent", `{"contents":[],"generation_config":{"max_output_tokens":9000,"candidate_count":2}}`), `"generationConfig":{"maxOutputTokens":1000,"candidateCount":2}`, 1000, 2},
		{"gemini not said", 2, post("/v1beta/models/gemini-3:generateContent", inGenerate), `"generationConfig":{"maxOutputTokens":1000}`, 1000, 1},
		{"ollama", 3, post("/api/chat", `{"model":"l","messages":[],"options":{"num_predict":-1}}`), `"options":{"num_predict":1000}`, 1000, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			call, d := s.Judge(c.route, c.q)
			if d != nil {
				t.Fatal(d)
			}
			target := call.Targets[0]
			if got := string(target.Body(0)); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s in it", got, c.want)
			}
			if target.Need.Output != c.output || target.Need.Choices != c.choices {
				t.Errorf("got %+v, want %d tokens in %d answers", target.Need, c.output, c.choices)
			}
		})
	}
	for name, q := range map[string]Request{
		"two limits":     post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"max_tokens":5,"max_completion_tokens":6}`),
		"negative":       post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"max_tokens":-1}`),
		"fraction":       post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"max_tokens":1.5}`),
		"exponent":       post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"max_tokens":1e9}`),
		"text":           post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"max_tokens":"5"}`),
		"too many":       post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"n":99999}`),
		"another case":   post("/v1/chat/completions", `{"model":"gpt-5","messages":[],"Max_Tokens":5}`),
		"two in another": post("/v1/responses", `{"model":"gpt-5","input":"a","max_output_tokens":5,"MAX_OUTPUT_TOKENS":6}`),
	} {
		if _, d := free.Judge(0, q); d == nil {
			t.Errorf("%s: got allowed, want a denial", name)
		}
	}
	thinking := `{"model":"claude-x","max_tokens":32000,"messages":[],"thinking":{"type":"enabled","budget_tokens":16000}}`
	if _, d := s.Judge(1, post("/v1/messages", thinking)); d == nil {
		t.Error("got a limit below what the request spends on thinking, want a denial")
	}
	if call, d := free.Judge(0, post("/v1/chat/completions", inChat)); d != nil || strings.Contains(string(call.Targets[0].Body(0)), "max_") {
		t.Errorf("got %v %v, want no limit where nobody sets one", call, d)
	}
	call, d := free.Judge(0, post("/v1/chat/completions", inChat))
	if d != nil {
		t.Fatal(d)
	}
	if got := string(call.Targets[0].Body(7)); !strings.Contains(got, `"max_completion_tokens":7`) {
		t.Errorf("got %s, want the bound of the budget in it", got)
	}
}

// Mistakes of the policy are told before anything runs.
func TestCompile(t *testing.T) {
	route := policy.Route{Name: "r", Provider: "openai-compatible", Host: "a.example.org", Models: []string{"gpt-*"}}
	with := func(f func(*policy.Inference)) policy.Inference {
		in := policy.Inference{Routes: []policy.Route{route}}
		f(&in)
		return in
	}
	cases := []struct {
		name, want string
		in         policy.Inference
	}{
		{"fine", "", with(func(*policy.Inference) {})},
		{"provider", "unknown provider", with(func(in *policy.Inference) { in.Routes[0].Provider = "x" })},
		{"base", "base", with(func(in *policy.Inference) { in.Routes[0].Base = "/a/../b" })},
		{"plain with a credential", "TLS", with(func(in *policy.Inference) { in.Routes[0].Plain, in.Routes[0].Credential = true, "k" })},
		{"rename to a denied model", "not among", with(func(in *policy.Inference) { in.Routes[0].Rename = map[string]string{"a": "b"} })},
		{"money without prices", "no price", with(func(in *policy.Inference) { in.Budget.Money = 1 })},
		{"money per minute without a price", "no price", with(func(in *policy.Inference) {
			in.Budget.MoneyPerMinute = 1
			in.Prices = map[string]policy.Price{"gpt-5": {Input: 1}}
		})},
		{"money with prices", "", with(func(in *policy.Inference) {
			in.Budget.Money = 1
			in.Prices = map[string]policy.Price{"gpt-*": {Input: 1}}
		})},
		{"money and any model", "no price", with(func(in *policy.Inference) {
			in.Budget.Money, in.Routes[0].Models = 1, nil
			in.Prices = map[string]policy.Price{"*": {Input: 1}}
		})},
		{"negative price", "negative", with(func(in *policy.Inference) { in.Prices = map[string]policy.Price{"*": {Input: -1}} })},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Compile(c.in)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"gpt-5*", "gpt-5-mini", true},
		{"gpt-5*", "gpt-4", false},
		{"*", "a/b", false},
		{"**", "a/b", true},
		{"nousresearch/*", "nousresearch/hermes-4", true},
		{"nousresearch/*", "nousresearch/a/b", false},
		{"nousresearch/*", "nousresearch", false},
		{"*/hermes*", "nousresearch/hermes-4", true},
		{"**b", "a/b", true},
		{"a*c*e", "abcde", true},
		{"a*c*e", "abcdf", false},
		{"**/x*y", "a/b/xzy", true},
		{"", "", true},
		{"", "a", false},
		{"a", "A", false},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("matches(%q, %q): got %v, want %v", c.pattern, c.name, got, c.want)
		}
	}
}
