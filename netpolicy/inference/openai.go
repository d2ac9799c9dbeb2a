package inference

import (
	"fmt"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// chat reads a request for chat completions or completions.
func (r *reader) chat() {
	r.stream = r.flag(r.doc, "stream", false)
	r.streamOptions()
	r.limits(r.doc, "", "max_completion_tokens", "max_tokens")
	r.choices = max(r.count(r.doc, "n", 1), r.count(r.doc, "best_of", 1), 1)
	if prompt := r.doc.Get("prompt"); r.op == opCompletions && prompt.Kind() == strictjson.Array {
		if first := append(prompt.Items(), strictjson.Value{})[0]; first.Kind() != strictjson.Number {
			r.choices *= max(int64(len(prompt.Items())), 1)
		}
	}
	if r.choices > 1024 {
		r.fail(denied("the request asks for %d answers", r.choices))
	}
	r.openAITools(r.doc.Get("tools"))
	r.exact(r.doc.Get("messages"), "messages", "role", "content", "tool_calls", "tool_call_id", "function_call")
	for i, m := range r.doc.Get("messages").Items() {
		where := fmt.Sprintf("messages[%d]", i)
		r.parts(m.Get("content"), where+".content")
		r.extras(m, where)
	}
	r.uses = chatTurns(r.doc.Get("messages"))
}

// streamOptions notes whether the client wants usage at the end of a stream.
func (r *reader) streamOptions() {
	options := r.doc.Get("stream_options")
	switch options.Kind() {
	case strictjson.Invalid, strictjson.Null:
		return
	case strictjson.Object:
	default:
		r.fail(malformed("field \"stream_options\" is not an object"))
		return
	}
	if err := options.Exact("include_usage"); err != nil {
		r.fail(malformed("%v", err))
	}
	r.usage = r.flag(options, "include_usage", false)
}

// exact refuses members of a list's objects that are spelt in another case.
func (r *reader) exact(list strictjson.Value, where string, names ...string) {
	for i, item := range list.Items() {
		if err := item.Exact(names...); err != nil {
			r.fail(malformed("%s[%d]: %v", where, i, err))
			return
		}
	}
}

// messageNames are the members of a message that are text, or read elsewhere.
var messageNames = []string{
	"role", "content", "tool_calls", "tool_call_id", "function_call", "name", "refusal", "reasoning", "reasoning_content",
	"reasoning_details", "thinking", "tool_name", "id", "type", "status", "annotations", "phase", "arguments", "output",
	"call_id", "input", "summary", "encrypted_content", "action",
}

// extras looks for references in what else a message has.
func (r *reader) extras(m strictjson.Value, where string) {
	r.fetches(m, where, messageNames...)
}

// openAITools notes tools that the provider runs itself.
func (r *reader) openAITools(list strictjson.Value) {
	if list.Kind() != strictjson.Invalid && list.Kind() != strictjson.Null && list.Kind() != strictjson.Array {
		r.fail(malformed("field \"tools\" is not a list"))
	}
	r.exact(list, "tools", "type", "server_url", "connector_id", "tools", "environment")
	for i, t := range list.Items() {
		where := fmt.Sprintf("tools[%d]", i)
		kind := t.Get("type").Text()
		switch kind {
		case "function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview", "computer-use-preview":
		case "namespace":
			r.openAITools(t.Get("tools"))
		case "tool_search":
			if !t.Get("execution").IsString("client") {
				r.tools = append(r.tools, kind)
			}
		case "shell":
			if !t.Get("environment").Get("type").IsString("local") {
				r.tools = append(r.tools, kind)
			}
		case "mcp":
			r.tools = append(r.tools, kind)
			r.fetch(where)
		case "":
			if t.Get("function").Kind() != strictjson.Object {
				r.fail(malformed("%s has no type", where))
			}
		default:
			r.tools = append(r.tools, kind)
		}
	}
}

// parts looks at the content of a message, in any of OpenAI's shapes.
func (r *reader) parts(content strictjson.Value, where string) {
	if content.Kind() == strictjson.Object {
		r.part(content, where)
	}
	for i, p := range content.Items() {
		r.part(p, fmt.Sprintf("%s[%d]", where, i))
	}
}

func (r *reader) part(p strictjson.Value, where string) {
	if p.Kind() != strictjson.Object {
		return // text, or tokens
	}
	if err := p.Exact("type", "image_url", "file", "file_id", "file_url", "file_data", "url", "source"); err != nil {
		r.fail(malformed("%s: %v", where, err))
	}
	kind := p.Get("type").Text()
	switch kind {
	case "text", "input_text", "output_text", "refusal", "thinking", "reasoning", "reasoning_text", "summary_text":
		r.fetches(p, where, "text", "refusal", "thinking", "reasoning", "annotations", "signature")
		return
	case "image_url", "input_image", "computer_screenshot", "input_audio", "file", "input_file", "video_url", "input_video",
		"image", "document_url", "audio", "audio_url", "document":
	default:
		r.tools = append(r.tools, "part."+kind)
	}
	r.fetches(p, where, "filename", "title", "name")
	for _, holder := range []strictjson.Value{p, p.Get("file"), p.Get("audio"), p.Get("image_url")} {
		if holder.Get("file_id").Kind() == strictjson.String || holder.Get("id").Kind() == strictjson.String {
			r.fetch(where + ".file_id")
		}
	}
}

// responses reads a request of the Responses API.
func (r *reader) responses() {
	r.stream = r.flag(r.doc, "stream", false)
	r.limits(r.doc, "", "max_output_tokens")
	r.least = 16
	r.openAITools(r.doc.Get("tools"))
	for _, name := range []string{"previous_response_id", "conversation"} {
		if v := r.doc.Get(name); v.Kind() != strictjson.Invalid && v.Kind() != strictjson.Null {
			r.stored = name
		}
	}
	input := r.doc.Get("input")
	r.exact(input, "input", "type", "role", "content", "call_id", "output", "arguments", "name", "id")
	for i, item := range input.Items() {
		where := fmt.Sprintf("input[%d]", i)
		switch kind := item.Get("type").Text(); kind {
		case "", "message":
			r.parts(item.Get("content"), where+".content")
		case "function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call",
			"reasoning", "compaction", "tool_search_call":
		case "function_call_output", "custom_tool_call_output", "computer_call_output":
			r.parts(item.Get("output"), where+".output")
		case "local_shell_call_output", "shell_call_output", "apply_patch_call_output", "tool_search_output":
			r.fetches(item.Get("output"), where+".output", "stdout", "stderr")
			r.openAITools(item.Get("tools"))
		case "item_reference":
			r.stored = where
		default:
			r.tools = append(r.tools, kind)
		}
		r.extras(item, where)
	}
	r.uses = responsesTurns(input)
}
