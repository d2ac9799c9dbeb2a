package inference

import (
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// events joins the data of a stream of events.
func events(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

const (
	chatStream = ": keep-alive\n\n" +
		`data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}],"usage":null}` + "\n\n" +
		"event: message\r\ndata: " + `{"id":"c","choices":[{"index":0,"delta":{"content":"lo"}}],"usage":null}` + "\r\n\r\n" +
		`data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` + "\n\n"
	chatUsage = `data: {"id":"c","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":40}}}` + "\n\n"
	chatDone  = "data: [DONE]\n\n"
)

var anthropicStream = "event: message_start\ndata: " + `{"type":"message_start","message":{"id":"m","usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":85,"output_tokens":1}}}` + "\n\n" +
	"event: ping\ndata: {\"type\":\"ping\"}\n\n" +
	"event: content_block_delta\ndata: " + `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + strings.Repeat("word ", 16) + `"}}` + "\n\n"

const anthropicEnd = "event: message_delta\ndata: " + `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":33}}` + "\n\n" +
	"event: message_stop\ndata: " + `{"type":"message_stop"}` + "\n\n"

// What a provider says of a call's use is found in each of its shapes, however
// the answer is cut into pieces.
func TestMeter(t *testing.T) {
	const events_, lines, one = "text/event-stream; charset=utf-8", "application/x-ndjson", "application/json"
	cases := []struct {
		name, content string
		op            operation
		answer        string
		want          Usage
	}{
		{"chat", one, opChat, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`, Usage{7, 0, 3, false}},
		{"chat stream", events_, opChat, chatStream + chatUsage + chatDone, Usage{100, 40, 20, false}},
		{"usage in each chunk", events_, opChat, events(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`, `{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`, "[DONE]"), Usage{9, 0, 2, false}},
		{"groq", events_, opChat, events(`{"choices":[{"delta":{}}],"x_groq":{"usage":{"prompt_tokens":9,"completion_tokens":2}}}`, "[DONE]"), Usage{9, 0, 2, false}},
		{"completions", one, opCompletions, `{"choices":[{"text":"hi"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`, Usage{7, 0, 3, false}},
		{"embeddings", one, opEmbeddings, `{"data":[{"embedding":[0.1,0.2]}],"usage":{"prompt_tokens":8,"total_tokens":8}}`, Usage{8, 0, 0, false}},
		{"responses", one, opResponses, `{"object":"response","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}],"usage":{"input_tokens":11,"input_tokens_details":{"cached_tokens":4},"output_tokens":6}}`, Usage{11, 4, 6, false}},
		{"responses stream", events_, opResponses, events(`{"type":"response.created","response":{"usage":null}}`, `{"type":"response.output_text.delta","delta":"hello"}`, `{"type":"response.completed","response":{"output":[],"usage":{"input_tokens":11,"output_tokens":6}}}`), Usage{11, 0, 6, false}},
		{"anthropic", one, opMessages, `{"type":"message","content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":5,"cache_read_input_tokens":2,"output_tokens":4}}`, Usage{7, 2, 4, false}},
		{"anthropic stream", events_, opMessages, anthropicStream + anthropicEnd, Usage{100, 85, 33, false}},
		{"gemini", one, opGenerate, `{"candidates":[{"content":{"parts":[{"text":"hi"}]}}],"usageMetadata":{"promptTokenCount":12,"cachedContentTokenCount":3,"candidatesTokenCount":4,"thoughtsTokenCount":6}}`, Usage{12, 3, 10, false}},
		{"gemini stream", events_, opGenerate, events(`{"candidates":[{"content":{"parts":[{"text":"h"}]}}],"usageMetadata":{"promptTokenCount":12}}`, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":4}}`), Usage{12, 0, 4, false}},
		{"gemini list", one, opGenerate, `[{"usageMetadata":{"promptTokenCount":12}},{"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":4}}]`, Usage{12, 0, 4, false}},
		{"ollama", lines, opOllamaChat, `{"message":{"content":"he"},"done":false}` + "\n" + `{"message":{"content":""},"done":true,"prompt_eval_count":14,"eval_count":9}` + "\n", Usage{14, 0, 9, false}},
		{"ollama in one", one, opOllamaGenerate, `{"response":"hello","done":true,"prompt_eval_count":14,"eval_count":9}`, Usage{14, 0, 9, false}},
		{"count", one, opCountTokens, `{"input_tokens":99}`, Usage{}},
		{"no usage", one, opChat, `{"choices":[{"message":{"content":"` + strings.Repeat("abcd", 10) + `"}}]}`, Usage{50, 0, 10, true}},
		{"no usage in a stream", events_, opChat, events(`{"choices":[{"delta":{"content":"`+strings.Repeat("abcd", 10)+`"}}]}`, "[DONE]"), Usage{50, 0, 10, true}},
		{"tool calls without usage", events_, opChat, events(`{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"12345678"}}]}}]}`, "[DONE]"), Usage{50, 0, 2, true}},
		{"not json", one, opChat, strings.Repeat("x", 400), Usage{50, 0, 100, true}},
		{"negative", one, opChat, `{"choices":[],"usage":{"prompt_tokens":-5,"completion_tokens":-5}}`, Usage{50, 0, 0, true}},
	}
	for _, c := range cases {
		for _, size := range []int{1, 7, len(c.answer)} {
			t.Run(c.name, func(t *testing.T) {
				target := &Target{op: c.op, Need: Need{Input: 50}}
				m := target.Measure(c.content)
				var got strings.Builder
				for rest := c.answer; rest != ""; {
					n := min(size, len(rest))
					got.Write(m.Pass([]byte(rest[:n])))
					rest = rest[n:]
				}
				got.Write(m.Rest())
				if got.String() != c.answer {
					t.Errorf("got %q passed on, want it unchanged", got.String())
				}
				if u := m.End(true, &Hold{}); u != c.want {
					t.Errorf("pieces of %d: got %+v, want %+v", size, u, c.want)
				}
			})
		}
	}
}

// A stream that ends early is counted by what was seen of it, and says so.
func TestMeterCutOff(t *testing.T) {
	hold := &Hold{amount: Totals{Input: 50, Output: 4000}}
	cases := []struct {
		name, answer string
		op           operation
		want         Usage
	}{
		{"nothing seen", "", opChat, Usage{50, 0, 4000, true}},
		{"chat", events(`{"choices":[{"delta":{"content":"` + strings.Repeat("abcd", 25) + `"}}]}`), opChat, Usage{50, 0, 25, true}},
		{"in an event", events(`{"choices":[{"delta":{"content":"abcdefgh"}}]}`) + `data: {"choices":[{"delta":{"content":"ab`, opChat, Usage{50, 0, 2, true}},
		{"anthropic", anthropicStream, opMessages, Usage{100, 85, 20, true}},
		{"responses", events(`{"type":"response.output_text.delta","delta":"12345678"}`, `{"type":"response.output_text.done","text":"12345678"}`), opResponses, Usage{50, 0, 2, true}},
		{"after usage", chatStream + chatUsage, opChat, Usage{100, 40, 20, true}},
		{"after the end", chatStream + chatUsage + chatDone, opChat, Usage{100, 40, 20, false}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := (&Target{op: c.op, Need: Need{Input: 50}}).Measure("text/event-stream")
			m.Pass([]byte(c.answer))
			if got := m.End(false, hold); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// The usage that only we asked for does not reach the client; all else does, as
// soon as its event is whole.
func TestMeterHidesUsage(t *testing.T) {
	long := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 2*maxEvent) + "\"}}]}\n\n"
	for name, answer := range map[string][]string{
		"usage last":   {chatStream, chatUsage, chatDone},
		"usage alone":  {"", chatUsage, ""},
		"no usage":     {chatStream, "", chatDone},
		"long event":   {long + chatStream, chatUsage, chatDone},
		"no line end":  {chatStream, chatUsage, "data: [DONE]"},
		"comment last": {chatStream, chatUsage, chatDone + ": bye"},
	} {
		for _, size := range []int{1 << 30, 1000, 3} {
			if size == 3 && name == "long event" {
				continue
			}
			m := (&Target{op: opChat, HidesUsage: true}).Measure("text/event-stream")
			var got strings.Builder
			for rest := strings.Join(answer, ""); rest != ""; {
				n := min(size, len(rest))
				got.Write(m.Pass([]byte(rest[:n])))
				rest = rest[n:]
			}
			got.Write(m.Rest())
			if want := answer[0] + answer[2]; got.String() != want {
				t.Errorf("%s, pieces of %d: got %.300q, want %.300q", name, size, got.String(), want)
			}
			if u := m.End(true, &Hold{}); answer[1] != "" && (u.Input != 100 || u.Output != 20) {
				t.Errorf("%s: got %+v, want the usage", name, u)
			}
		}
	}
	m := (&Target{op: opChat, HidesUsage: true}).Measure("text/event-stream")
	if got := string(m.Pass([]byte(chatStream))); got != chatStream {
		t.Errorf("got %q at once, want every whole event", got)
	}
}

func TestCost(t *testing.T) {
	price := policy.Price{Input: 2, CachedInput: 0.5, Output: 10}
	if got, want := (Usage{Input: 1_000_000, CachedInput: 400_000, Output: 100_000}).Cost(price), 0.6*2+0.4*0.5+0.1*10; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := (Usage{Input: 1_000_000, CachedInput: 400_000}).Cost(policy.Price{Input: 3}), 3.0; got != want {
		t.Errorf("without a price for stored input: got %v, want %v", got, want)
	}
}

// A meter for which there is no room passes everything on and estimates.
func TestMeterGivesUp(t *testing.T) {
	for content, op := range map[string]operation{"text/event-stream": opChat, "application/json": opMessages} {
		m := (&Target{op: op, HidesUsage: true, Need: Need{Input: 50}}).Measure(content)
		head, tail := chatStream[:60], chatStream[60:]+chatUsage
		got := string(m.Pass([]byte(head)))
		if m.Held() == 0 {
			t.Errorf("%s: got nothing held, want a part of an event", content)
		}
		got += string(m.GiveUp()) + string(m.Pass([]byte(tail))) + string(m.Rest())
		if got != head+tail {
			t.Errorf("%s: got %q, want all of it", content, got)
		}
		if u := m.End(true, &Hold{}); !u.Estimated || u.Input != 50 || u.Output < int64(len(tail))/4 || m.Held() != 0 {
			t.Errorf("%s: got %+v with %d bytes held, want an estimate", content, u, m.Held())
		}
	}
}

// How an answer was cut into pieces makes no difference to what is passed on and
// counted.
func FuzzMeter(f *testing.F) {
	for _, seed := range []string{chatStream + chatUsage + chatDone, anthropicStream + anthropicEnd, "data: {\r\ndata: }\r\n\r\n", "\n\ndata:\n\n:"} {
		f.Add(uint8(opChat), true, []byte(seed), uint16(3))
		f.Add(uint8(opMessages), false, []byte(seed), uint16(11))
	}
	f.Fuzz(func(t *testing.T, op uint8, hides bool, answer []byte, size uint16) {
		run := func(size int) (string, Usage) {
			m := (&Target{op: operation(op % uint8(opList)), HidesUsage: hides}).Measure("text/event-stream")
			var out strings.Builder
			for rest := answer; len(rest) > 0; {
				n := min(size, len(rest))
				out.Write(m.Pass(rest[:n]))
				rest = rest[n:]
			}
			out.Write(m.Rest())
			return out.String(), m.End(true, &Hold{})
		}
		whole, used := run(len(answer) + 1)
		pieces, again := run(int(size%64) + 1)
		if whole != pieces || used != again {
			t.Fatalf("got %q and %+v in pieces, want %q and %+v", pieces, again, whole, used)
		}
		if !hides && whole != string(answer) {
			t.Fatalf("got %q passed on, want all", whole)
		}
		if used.Input < 0 || used.Output < 0 || used.CachedInput < 0 {
			t.Fatalf("got %+v, want nothing below 0", used)
		}
	})
}
