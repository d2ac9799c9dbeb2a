package inference

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// step is what the model does in one turn of a made-up conversation: calls with
// their results, or, without calls, words and the user's answer to them.
type step []use

type use struct {
	tool, args, result string
	failed             bool // where the provider has a mark for it
}

// shapes write the conversations, with the results of each step in any order.
var shapes = map[string]struct {
	index int
	path  string
	write func(steps []step, order func(int) []int) string
}{
	"chat":      {0, "/v1/chat/completions", writeChat},
	"responses": {0, "/v1/responses", writeResponses},
	"anthropic": {1, "/v1/messages", writeAnthropic},
	"gemini":    {2, "/v1beta/models/gemini-3:generateContent", writeGemini},
}

func inOrder(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func writeChat(steps []step, order func(int) []int) string {
	out := []string{`{"role":"user","content":"go"}`}
	for s, uses := range steps {
		if len(uses) == 0 {
			out = append(out, `{"role":"assistant","content":"done"}`, `{"role":"user","content":"again"}`)
			continue
		}
		var calls []string
		for i, u := range uses {
			calls = append(calls, fmt.Sprintf(`{"id":"c%d_%d","type":"function","function":{"name":%q,"arguments":%q}}`, s, i, u.tool, u.args))
		}
		out = append(out, `{"role":"assistant","content":null,"tool_calls":[`+strings.Join(calls, ",")+`]}`)
		for _, i := range order(len(uses)) {
			out = append(out, fmt.Sprintf(`{"role":"tool","tool_call_id":"c%d_%d","content":%q}`, s, i, uses[i].result))
		}
	}
	return `{"model":"gpt-5","messages":[` + strings.Join(out, ",") + `]}`
}

func writeResponses(steps []step, order func(int) []int) string {
	out := []string{`{"role":"user","content":"go"}`}
	for s, uses := range steps {
		if len(uses) == 0 {
			out = append(out, `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}`, `{"role":"user","content":"again"}`)
			continue
		}
		for i, u := range uses {
			out = append(out, fmt.Sprintf(`{"type":"function_call","call_id":"c%d_%d","name":%q,"arguments":%q}`, s, i, u.tool, u.args))
		}
		for _, i := range order(len(uses)) {
			out = append(out, fmt.Sprintf(`{"type":"function_call_output","call_id":"c%d_%d","output":%q}`, s, i, uses[i].result))
		}
	}
	return `{"model":"gpt-5","input":[` + strings.Join(out, ",") + `]}`
}

func writeAnthropic(steps []step, order func(int) []int) string {
	out := []string{`{"role":"user","content":"go"}`}
	for s, uses := range steps {
		if len(uses) == 0 {
			out = append(out, `{"role":"assistant","content":"done"}`, `{"role":"user","content":"again"}`)
			continue
		}
		var calls, results []string
		for i, u := range uses {
			calls = append(calls, fmt.Sprintf(`{"type":"tool_use","id":"c%d_%d","name":%q,"input":%s}`, s, i, u.tool, u.args))
		}
		for _, i := range order(len(uses)) {
			results = append(results, fmt.Sprintf(`{"type":"tool_result","tool_use_id":"c%d_%d","is_error":%v,"content":[{"type":"text","text":%q}]}`, s, i, uses[i].failed, uses[i].result))
		}
		results = append(results, `{"type":"text","text":"a reminder of the program"}`)
		out = append(out, `{"role":"assistant","content":[`+strings.Join(calls, ",")+`]}`, `{"role":"user","content":[`+strings.Join(results, ",")+`]}`)
	}
	return `{"model":"claude-x","max_tokens":9,"messages":[` + strings.Join(out, ",") + `]}`
}

// writeGemini has no ids: results of one tool come in the order of its calls.
func writeGemini(steps []step, _ func(int) []int) string {
	out := []string{`{"role":"user","parts":[{"text":"go"}]}`}
	for _, uses := range steps {
		if len(uses) == 0 {
			out = append(out, `{"role":"model","parts":[{"text":"done"}]}`, `{"role":"user","parts":[{"text":"again"}]}`)
			continue
		}
		var calls, results []string
		for _, u := range uses {
			calls = append(calls, fmt.Sprintf(`{"functionCall":{"name":%q,"args":%s}}`, u.tool, u.args))
			name := "output"
			if u.failed {
				name = "error"
			}
			results = append(results, fmt.Sprintf(`{"functionResponse":{"name":%q,"response":{%q:%q}}}`, u.tool, name, u.result))
		}
		out = append(out, `{"role":"model","parts":[`+strings.Join(calls, ",")+`]}`, `{"role":"user","parts":[`+strings.Join(results, ",")+`]}`)
	}
	return `{"contents":[` + strings.Join(out, ",") + `]}`
}

func stopping(t testing.TB, stop policy.HardStop) *Set {
	t.Helper()
	in := providers()
	in.HardStop = stop
	return compile(t, in)
}

var (
	fails   = use{"run", `{"cmd":"make","n":1}`, "Error: no rule", true}
	fails2  = use{"run", `{ "n":1, "cmd":"make" }`, "Error: no rule to make it", true}
	ok      = use{"run", `{"cmd":"make","n":1}`, "built", false}
	other   = use{"read", `{"path":"a"}`, "text", false}
	failing = use{"read", `{"path":"b"}`, "Error: no such file", true}
)

// Conversations that turn in circles are refused, in every shape.
func TestHardStop(t *testing.T) {
	cases := []struct {
		name  string
		steps []step
		want  string // the field that refuses, or ""
	}{
		{"two failures", []step{{fails}, {fails}}, ""},
		{"three failures", []step{{fails}, {fails}, {fails}}, "exact_failure"},
		{"in another spelling", []step{{fails}, {fails2}, {fails}}, "exact_failure"},
		{"other arguments", []step{{fails}, {failing}, {fails}, {failing}}, ""},
		{"others in between", []step{{fails}, {other}, {fails}, {failing}, {fails}}, "exact_failure"},
		{"a success in between", []step{{fails}, {fails}, {ok}, {fails}, {fails}}, ""},
		{"in parallel", []step{{fails, other}, {failing, fails}, {fails}}, "exact_failure"},
		{"at once", []step{{fails, fails, fails}}, "exact_failure"},
		{"same result", []step{{other}, {other}, {other}, {other}}, "no_progress"},
		{"same result three times", []step{{other}, {other}, {other}}, ""},
		{"another result in between", []step{{ok}, {ok}, {ok}, {use{"run", ok.args, "rebuilt", false}}, {ok}, {ok}, {ok}}, ""},
		{"the user asks again", []step{{fails}, {fails}, {}, {fails}, {fails}}, ""},
		{"after the user asked", []step{{fails}, {}, {fails}, {fails}, {fails}}, "exact_failure"},
	}
	for shape, s := range shapes {
		for _, c := range cases {
			t.Run(shape+"/"+c.name, func(t *testing.T) {
				_, d := stopping(t, policy.HardStop{ExactFailure: 3, NoProgress: 4, Action: "stop"}).Judge(s.index, post(s.path, s.write(c.steps, inOrder)))
				switch {
				case d == nil && c.want != "":
					t.Fatalf("got allowed, want a denial by %s", c.want)
				case d != nil && (c.want == "" || d.Rule != "inference.hard_stop."+c.want || !d.Stop || d.Malformed):
					t.Fatalf("got %+v, want %q", d, c.want)
				}
				if _, d := stopping(t, policy.HardStop{}).Judge(s.index, post(s.path, s.write(c.steps, inOrder))); d != nil {
					t.Errorf("without hard_stop: got %s, want allowed", d.Reason)
				}
				_, d = stopping(t, policy.HardStop{ExactFailure: 3, NoProgress: 4}).Judge(s.index, post(s.path, s.write(c.steps, inOrder)))
				if d != nil && d.Stop {
					t.Error("without an action: got the run ended, want only the call refused")
				}
			})
		}
	}
}

// In which order parallel calls were answered makes no difference.
func TestHardStopOrder(t *testing.T) {
	set := stopping(t, policy.HardStop{ExactFailure: 3, NoProgress: 3})
	random := rand.New(rand.NewPCG(1, 2))
	all := []use{fails, fails2, ok, other, failing}
	denials := 0
	for range 2000 {
		var steps []step
		for range 1 + random.IntN(5) {
			var s step
			for range random.IntN(4) {
				s = append(s, all[random.IntN(len(all))])
			}
			steps = append(steps, s)
		}
		for name, s := range shapes {
			_, want := set.Judge(s.index, post(s.path, s.write(steps, inOrder)))
			_, got := set.Judge(s.index, post(s.path, s.write(steps, random.Perm)))
			if (got == nil) != (want == nil) || got != nil && got.Reason != want.Reason {
				t.Fatalf("%s, %v: got %v, want %v", name, steps, got, want)
			}
			if want != nil {
				denials++
			}
		}
	}
	if denials < 100 {
		t.Errorf("got %d denials, want enough for the comparison to mean something", denials)
	}
}

// A conversation of which a part is not in the request cannot be judged.
func TestHardStopSeesAll(t *testing.T) {
	for name, q := range map[string]Request{
		"previous response": post("/v1/responses", `{"model":"gpt-5","input":"a","previous_response_id":"r"}`),
		"conversation":      post("/v1/responses", `{"model":"gpt-5","input":"a","conversation":"c"}`),
		"reference":         post("/v1/responses", `{"model":"gpt-5","input":[{"type":"item_reference","id":"i"}]}`),
	} {
		if _, d := stopping(t, policy.HardStop{ExactFailure: 3}).Judge(0, q); d == nil {
			t.Errorf("%s: got allowed, want a denial", name)
		}
		if _, d := stopping(t, policy.HardStop{}).Judge(0, q); d != nil {
			t.Errorf("%s without hard_stop: got %s, want allowed", name, d.Reason)
		}
	}
	cached := post("/v1beta/models/gemini-3:generateContent", `{"contents":[],"cached_content":"cachedContents/x"}`)
	if _, d := stopping(t, policy.HardStop{NoProgress: 3}).Judge(2, cached); d == nil {
		t.Error("cached content: got allowed, want a denial")
	}
}

func TestIsFailure(t *testing.T) {
	for text, want := range map[string]bool{
		"":                             false,
		"fine":                         false,
		"Error: no":                    true,
		"error handling is a topic":    false,
		"fatal: not a repository":      true,
		"Exit code 1\nmake: ***":       true,
		"Exit code 0":                  false,
		"Exit code: 2\nWall time: 1 s": true,
		"Process exited with code 127": true,
		"<tool_use_error>bad":          true,
		"a\nTraceback (most recent call last):\n  File": true,
		`{"output":"x","exit_code":1}`:                  true,
		`{"output":"x","exit_code":0}`:                  false,
		`{"output":"x","exit_code":0,"error":null}`:     false,
		`{"output":"x","metadata":{"exit_code":2}}`:     true,
		`{"success":false}`:                             true,
		`{"success":true,"error":""}`:                   false,
		`{"error":"no such file"}`:                      true,
		`{"error":{"code":5}}`:                          true,
		`{"isError":true,"content":[]}`:                 true,
		`{"status":"error"}`:                            true,
		`{"status":"ok"}`:                               false,
		`{"errors_found":3}`:                            false,
		"the exit code 1 is discussed far behind":       false,
	} {
		if got := isFailure(text); got != want {
			t.Errorf("isFailure(%q): got %v, want %v", text, got, want)
		}
	}
}
