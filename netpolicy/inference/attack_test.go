package inference

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// TestMeterCutBeforeAnything: whoever leaves as soon as something came is charged
// with all that was set aside, unless what came says what was used.
func TestMeterCutBeforeAnything(t *testing.T) {
	hold := &Hold{amount: Totals{Input: 50, Output: 4000}}
	full := Usage{50, 0, 4000, true}
	const stream, one = "text/event-stream", "application/json"
	for _, c := range []struct {
		name, content, answer string
		op                    operation
		want                  Usage
	}{
		{"control: text", stream, events(`{"choices":[{"delta":{"content":"abcdefgh"}}]}`), opChat, Usage{50, 0, 2, true}},
		{"control: usage", stream, chatUsage, opChat, Usage{100, 40, 20, true}},
		{"a comment", stream, ": PROCESSING\n\n", opChat, full},
		{"a role", stream, events(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`), opChat, full},
		{"message_start", stream, "data: " + `{"type":"message_start","message":{"usage":{"input_tokens":60,"output_tokens":1}}}` + "\n\n", opMessages, Usage{60, 0, 4000, true}},
		{"response.created", stream, events(`{"type":"response.created","response":{"usage":null}}`), opResponses, full},
		{"blanks before JSON", one, "   \n", opChat, full},
		{"half of JSON", one, `{"choices":[{"message":{"content":"hi`, opChat, full},
	} {
		m := (&Target{op: c.op, Need: Need{Input: 50}}).Measure(c.content)
		m.Pass([]byte(c.answer))
		if got := m.End(false, hold); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	m := (&Target{op: opChat, Need: Need{Input: 50}}).Measure(stream)
	m.Pass([]byte(strings.ReplaceAll(chatStream, "\n", "\r")))
	if got := m.End(true, hold); got.Output == 0 {
		t.Errorf("line ends that nobody reads: got %+v, want an estimate", got)
	}
}

// TestManyCalls: a conversation of very many calls and results that belong to none
// of them is read in a time that grows with its length alone.
func TestManyCalls(t *testing.T) {
	for _, c := range []struct{ name, call, result string }{
		{"ids", `{"type":"tool_use","id":"a","name":"f"}`, `{"type":"tool_result","tool_use_id":"b"}`},
		{"one id", `{"type":"tool_use","id":"a","name":"f"}`, `{"type":"tool_result","tool_use_id":"a"}`},
		{"no ids", `{"type":"tool_use","name":"f"}`, `{"type":"tool_result"}`},
	} {
		const n = 40_000
		body := fmt.Sprintf(`{"model":"claude-x","max_tokens":9,"messages":[{"role":"assistant","content":[%s]},{"role":"user","content":[%s]}]}`,
			strings.TrimSuffix(strings.Repeat(c.call+",", n), ","), strings.TrimSuffix(strings.Repeat(c.result+",", n), ","))
		began := time.Now()
		f, d := read(endpoint{op: opMessages, family: Anthropic}, []byte(body))
		if d != nil || len(f.uses) != n {
			t.Fatalf("%s: got %d calls and %v, want %d", c.name, len(f.uses), d, n)
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("%s: took %v", c.name, took)
		}
	}
}

// TestLimitThatNobodyReads: a client bounds its output in a field that many servers
// do not know, so that the server writes without end.
func TestLimitThatNobodyReads(t *testing.T) {
	bounded := providers()
	for i := range bounded.Routes {
		bounded.Routes[i].MaxOutputTokens = 1000
	}
	budget := providers()
	budget.Budget.OutputTokens = 1_000_000
	const newer, both = `"max_completion_tokens":9}`, `"max_completion_tokens":9,"max_tokens":9}`
	for _, c := range []struct {
		name  string
		in    policy.Inference
		route int
		path  string
		want  string
	}{
		{"control: nothing is bounded", providers(), 4, "/api/v1/chat/completions", newer},
		{"control: OpenAI", bounded, 0, "/v1/chat/completions", newer},
		{"bounded", bounded, 4, "/api/v1/chat/completions", both},
		{"budget", budget, 4, "/api/v1/chat/completions", both},
		{"completions", bounded, 4, "/api/v1/completions", both},
	} {
		model := map[int]string{0: "gpt-5", 4: "nousresearch/h"}[c.route]
		call, d := compile(t, c.in).Judge(c.route, post(c.path, `{"model":"`+model+`","prompt":"a","max_completion_tokens":9}`))
		if d != nil {
			t.Fatalf("%s: %v", c.name, d)
		}
		if got := string(call.Targets[0].Body(0)); !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: got %s, want %s at its end", c.name, got, c.want)
		}
	}
}

// TestJSONInTexts: arguments and results are texts that hold JSON, whose values
// nobody counted before they are parsed.
func TestJSONInTexts(t *testing.T) {
	list := `{"a":[` + strings.Repeat("0,", 4<<20) + `0],"exit_code":1}`
	body := `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":` + strconv.Quote(list) + `}}]},` +
		`{"role":"tool","tool_call_id":"a","content":` + strconv.Quote(list) + `}]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, d := read(endpoint{op: opChat, family: OpenAI}, []byte(body))
	runtime.ReadMemStats(&after)
	if d != nil || len(f.uses) != 1 || !f.uses[0].done {
		t.Fatalf("got %d calls and %v, want one with its result", len(f.uses), d)
	}
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(12*len(body)); took > most {
		t.Errorf("got %d MiB for a body of %d, want no more than %d", took>>20, len(body)>>20, most>>20)
	}
	small := `{"exit_code":1,"list":[` + strings.Repeat("0,", 1000) + `0]}`
	if !isFailure(small) || arguments(strictjson.TextOf(`{"b":1,"a":2}`)) != arguments(strictjson.TextOf(`{"a":2, "b":1}`)) {
		t.Error("control: JSON in a text is not read")
	}
}

// TestTextThatLooksLikeAnImage: text in the place of media counts by its length;
// otherwise many calls at a time would go far over a budget.
func TestTextThatLooksLikeAnImage(t *testing.T) {
	data := strings.Repeat("word", 100_000)
	source := func(source string) Request {
		return post("/v1/messages", `{"model":"claude-x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":`+source+`}]}]}`)
	}
	for _, c := range []struct {
		name  string
		route int
		q     Request
		text  bool
	}{
		{"control: image", 1, source(`{"type":"base64","media_type":"image/png","data":"` + data + `"}`), false},
		{"control: image in a URL", 0, post("/v1/chat/completions", `{"model":"gpt-5","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`+data+`"}}]}]}`), false},
		{"text document", 1, source(`{"type":"text","media_type":"text/plain","data":"` + data + `"}`), true},
		{"text in base64", 1, source(`{"type":"base64","media_type":"text/plain","data":"` + data + `"}`), true},
		{"text in a URL", 0, post("/v1/responses", `{"model":"gpt-5","input":[{"role":"user","content":[{"type":"input_file","filename":"a.txt","file_data":"data:text/plain;base64,`+data+`"}]}]}`), true},
		{"Gemini", 2, post("/v1beta/models/gemini-3:generateContent", `{"contents":[{"parts":[{"inline_data":{"mime_type":"text/csv","data":"`+data+`"}}]}]}`), true},
	} {
		call, d := compile(t, providers()).Judge(c.route, c.q)
		if d != nil {
			t.Fatalf("%s: %v", c.name, d)
		}
		if got := call.Targets[0].Need.Input; got > 50_000 != c.text {
			t.Errorf("%s: got an estimate of %d tokens for %d bytes", c.name, got, len(data))
		}
	}
}

// TestModelsThatAreMore: OpenRouter reads more than a model from its name.
func TestModelsThatAreMore(t *testing.T) {
	in := providers()
	in.Routes[4].Models = []string{"**"}
	for model, want := range map[string]string{
		"openai/gpt-5": "", "openai/gpt-5:nitro": "", "openai/gpt-5:online": "online", "openai/gpt-5@preset/mine": "preset", "@preset/mine": "preset",
	} {
		_, d := compile(t, in).Judge(4, post("/api/v1/chat/completions", `{"model":"`+model+`","messages":[]}`))
		if (d == nil) != (want == "") || d != nil && !strings.Contains(d.Reason, want) {
			t.Errorf("%s: got %v, want a denial of %q", model, d, want)
		}
	}
}

// TestServiceAtAnotherPrice: a budget in money goes by a table, which a request for a
// faster service makes wrong.
func TestServiceAtAnotherPrice(t *testing.T) {
	money := providers()
	money.Budget.Money = 10
	money.Prices = map[string]policy.Price{"**": {Input: 1, Output: 2}}
	listed := providers()
	listed.Budget, listed.Prices = money.Budget, money.Prices
	listed.Routes[0].ServerTools = []string{"service_tier"}
	chat := func(field string) Request {
		return post("/v1/chat/completions", `{"model":"gpt-5","messages":[]`+field+`}`)
	}
	for _, c := range []struct {
		name  string
		in    policy.Inference
		route int
		q     Request
		ok    bool
	}{
		{"control: none", money, 0, chat(""), true},
		{"control: default", money, 0, chat(`,"service_tier":"default"`), true},
		{"control: no budget in money", providers(), 0, chat(`,"service_tier":"priority"`), true},
		{"control: listed", listed, 0, chat(`,"service_tier":"priority"`), true},
		{"priority", money, 0, chat(`,"service_tier":"priority"`), false},
		{"in capitals", money, 0, chat(`,"service_tier":"PRIORITY"`), false},
		{"Anthropic", money, 1, post("/v1/messages", `{"model":"claude-x","max_tokens":9,"messages":[],"speed":"fast"}`), false},
		{"Gemini", money, 2, post("/v1beta/models/gemini-3:generateContent", `{"contents":[],"service_tier":"priority"}`), false},
	} {
		if _, d := compile(t, c.in).Judge(c.route, c.q); (d == nil) != c.ok {
			t.Errorf("%s: got %v, want allowed %v", c.name, d, c.ok)
		}
	}
}
