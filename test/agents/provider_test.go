package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// provider stands for the providers of the agents' models: OpenAI's chat
// completions and responses, Anthropic's messages and Gemini's, all streaming.
// It insists on its key, and has one answer: it lets the agent run a command
// and, once the result is there, says that all is done.
type provider struct {
	key     string
	command string

	mu       sync.Mutex
	calls    map[string]int // requests that were answered, by path
	refused  int            // requests without the key
	results  []string       // bodies that held a tool's result
	unserved []string       // paths that nobody knows
}

func newProvider(key, command string) *provider {
	return &provider{key: key, command: command, calls: map[string]int{}}
}

// shells are the names that agents give to the tool that runs a command, and
// how each wants its argument.
var shells = map[string]func(command string) any{
	"exec_command":      func(c string) any { return map[string]any{"cmd": c} },
	"shell":             func(c string) any { return map[string]any{"command": []string{"bash", "-c", c}} },
	"shell_command":     func(c string) any { return map[string]any{"command": c} },
	"Bash":              func(c string) any { return map[string]any{"command": c, "description": "do the task"} },
	"bash":              func(c string) any { return map[string]any{"command": c, "description": "do the task"} },
	"run_shell_command": func(c string) any { return map[string]any{"command": c, "description": "do the task"} },
}

// asked is what the provider must know of a request.
type asked struct {
	Model    string            `json:"model"`
	Stream   bool              `json:"stream"`
	Tools    []json.RawMessage `json:"tools"`
	Contents json.RawMessage   `json:"contents"`
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !p.knows(r) {
		http.Error(w, `{"error":{"message":"invalid api key","type":"authentication_error"}}`, http.StatusUnauthorized)
		return
	}
	var a asked
	_ = json.Unmarshal(body, &a) // the paths without a body do not need it
	done := strings.Contains(string(body), marker)
	p.note(r.URL.Path, string(body), done)
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/responses"):
		p.responses(w, a, done)
	case strings.HasSuffix(path, "/chat/completions"):
		p.chat(w, a, done)
	case strings.HasSuffix(path, "/messages"):
		p.messages(w, a, done)
	case strings.HasSuffix(path, ":streamGenerateContent"), strings.HasSuffix(path, ":generateContent"):
		p.gemini(w, a, done, strings.HasSuffix(path, ":streamGenerateContent"))
	case strings.HasSuffix(path, "/count_tokens"):
		fmt.Fprint(w, `{"input_tokens":100}`)
	case strings.HasSuffix(path, ":countTokens"):
		fmt.Fprint(w, `{"totalTokens":100}`)
	case strings.HasSuffix(path, "/models"):
		fmt.Fprint(w, `{"object":"list","data":[{"id":"test-model","object":"model"}]}`)
	default:
		p.mu.Lock()
		p.unserved = append(p.unserved, path)
		p.mu.Unlock()
		http.NotFound(w, r)
	}
}

// knows tells whether the request shows the key, in one of the places in which
// agents send theirs.
func (p *provider) knows(r *http.Request) bool {
	got := []string{r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key"), r.URL.Query().Get("key")}
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		got = append(got, bearer)
	}
	ok := slices.Contains(got, p.key)
	if !ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refused++
	}
	return ok
}

func (p *provider) note(path, body string, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[path]++
	if done {
		p.results = append(p.results, body)
	}
}

// tool picks the agent's tool for commands from those that it offers.
func (p *provider) tool(a asked) (name, arguments string) {
	for _, raw := range a.Tools {
		for shell, argument := range shells {
			if !strings.Contains(string(raw), `"name":"`+shell+`"`) {
				continue
			}
			b, err := json.Marshal(argument(p.command))
			if err != nil {
				return "", ""
			}
			return shell, string(b)
		}
	}
	return "", ""
}

// events writes server-sent events, each at once.
func events(w http.ResponseWriter, named bool, list ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range list {
		b, err := json.Marshal(e)
		if err != nil {
			return
		}
		if m, ok := e.(map[string]any); ok && named {
			fmt.Fprintf(w, "event: %s\n", m["type"])
		}
		fmt.Fprintf(w, "data: %s\n\n", b)
		_ = http.NewResponseController(w).Flush()
	}
}

type object = map[string]any

func (p *provider) responses(w http.ResponseWriter, a asked, done bool) {
	name, arguments := p.tool(a)
	item := object{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []object{{"type": "output_text", "text": "all done", "annotations": []any{}}}}
	if !done && name != "" {
		item = object{"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": arguments, "status": "completed"}
	}
	usage := object{"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
	response := object{"id": "resp_1", "object": "response", "model": a.Model, "status": "completed", "output": []any{item}, "usage": usage}
	events(w, true,
		object{"type": "response.created", "response": object{"id": "resp_1", "object": "response", "model": a.Model, "status": "in_progress", "output": []any{}}},
		object{"type": "response.output_item.added", "output_index": 0, "item": item},
		object{"type": "response.output_item.done", "output_index": 0, "item": item},
		object{"type": "response.completed", "response": response})
}

func (p *provider) chat(w http.ResponseWriter, a asked, done bool) {
	name, arguments := p.tool(a)
	delta, reason := object{"role": "assistant", "content": "all done"}, "stop"
	if !done && name != "" {
		delta = object{"role": "assistant", "tool_calls": []object{{"index": 0, "id": "call_1", "type": "function", "function": object{"name": name, "arguments": arguments}}}}
		reason = "tool_calls"
	}
	usage := object{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
	if !a.Stream {
		_ = json.NewEncoder(w).Encode(object{"id": "c1", "object": "chat.completion", "model": a.Model, "usage": usage, "choices": []object{{"index": 0, "message": delta, "finish_reason": reason}}})
		return
	}
	chunk := func(choices []object, usage any) object {
		return object{"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": a.Model, "choices": choices, "usage": usage}
	}
	events(w, false,
		chunk([]object{{"index": 0, "delta": delta, "finish_reason": nil}}, nil),
		chunk([]object{{"index": 0, "delta": object{}, "finish_reason": reason}}, nil),
		chunk([]object{}, usage))
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func (p *provider) messages(w http.ResponseWriter, a asked, done bool) {
	name, arguments := p.tool(a)
	block, delta, reason := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": "all done"}, "end_turn"
	if !done && name != "" {
		block = object{"type": "tool_use", "id": "toolu_1", "name": name, "input": object{}}
		delta, reason = object{"type": "input_json_delta", "partial_json": arguments}, "tool_use"
	}
	message := object{"id": "msg_1", "type": "message", "role": "assistant", "model": a.Model, "content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": 100, "output_tokens": 1}}
	if !a.Stream {
		message["content"], message["stop_reason"] = []object{{"type": "text", "text": "all done"}}, "end_turn"
		_ = json.NewEncoder(w).Encode(message)
		return
	}
	events(w, true,
		object{"type": "message_start", "message": message},
		object{"type": "content_block_start", "index": 0, "content_block": block},
		object{"type": "content_block_delta", "index": 0, "delta": delta},
		object{"type": "content_block_stop", "index": 0},
		object{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": 10}},
		object{"type": "message_stop"})
}

func (p *provider) gemini(w http.ResponseWriter, a asked, done, stream bool) {
	name, arguments := p.tool(a)
	part := object{"text": "all done"}
	if !done && name != "" {
		part = object{"functionCall": object{"name": name, "args": json.RawMessage(arguments)}}
	}
	answer := object{
		"candidates":    []object{{"content": object{"role": "model", "parts": []object{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110},
	}
	if !stream {
		_ = json.NewEncoder(w).Encode(answer)
		return
	}
	events(w, false, answer)
}
