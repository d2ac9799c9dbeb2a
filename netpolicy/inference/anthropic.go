package inference

import (
	"fmt"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// messages reads a request for Anthropic's messages.
func (r *reader) messages() {
	r.stream = r.flag(r.doc, "stream", false)
	r.limits(r.doc, "", "max_tokens")
	if thinking := r.doc.Get("thinking"); thinking.Kind() == strictjson.Object {
		if err := thinking.Exact("type", "budget_tokens"); err != nil {
			r.fail(malformed("thinking: %v", err))
		}
		r.least = r.count(thinking, "budget_tokens", 1) + 1
	}
	if r.doc.Get("mcp_servers").Kind() != strictjson.Invalid {
		r.fetch("mcp_servers") // and it is a field that counts as a tool
	}
	r.blocks(r.doc.Get("system"), "system")
	r.exact(r.doc.Get("messages"), "messages", "role", "content")
	for i, m := range r.doc.Get("messages").Items() {
		where := fmt.Sprintf("messages[%d]", i)
		r.blocks(m.Get("content"), where+".content")
		r.extras(m, where)
	}
	r.anthropicTools()
	r.uses = anthropicTurns(r.doc.Get("messages"))
}

// clientTools are the types of Anthropic's tools that the client runs.
var clientTools = []string{"custom", "bash_*", "text_editor_*", "computer_*", "memory_*"}

func (r *reader) anthropicTools() {
	list := r.doc.Get("tools")
	r.exact(list, "tools", "type", "name")
	for i, t := range list.Items() {
		v := t.Get("type")
		switch {
		case v.Kind() == strictjson.Invalid || v.Kind() == strictjson.Null:
			if t.Get("input_schema").Kind() != strictjson.Object {
				r.fail(malformed("tools[%d] has neither type nor input_schema", i))
			}
		case v.Kind() != strictjson.String:
			r.fail(malformed("tools[%d].type is not a string", i))
		case !matchesAny(clientTools, v.Text()):
			r.tools = append(r.tools, v.Text())
		}
	}
}

// blocks looks at content in Anthropic's shape.
func (r *reader) blocks(content strictjson.Value, where string) {
	r.exact(content, where, "type", "source", "content", "is_error", "tool_use_id", "id", "name", "input")
	for i, b := range content.Items() {
		r.block(b, fmt.Sprintf("%s[%d]", where, i))
	}
}

func (r *reader) block(b strictjson.Value, where string) {
	kind := b.Get("type").Text()
	switch kind {
	case "text", "thinking", "redacted_thinking", "tool_use", "compaction", "fallback":
	case "tool_result", "search_result":
		r.blocks(b.Get("content"), where+".content")
	case "image", "document":
		r.source(b.Get("source"), where+".source")
	case "server_tool_use", "mcp_tool_use", "tool_reference":
		// What was run before; it runs nothing again.
	default:
		if !strings.HasSuffix(kind, "_tool_result") {
			r.tools = append(r.tools, "part."+kind)
		}
	}
}

func (r *reader) source(s strictjson.Value, where string) {
	if err := s.Exact("type", "data", "url", "file_id", "content", "media_type"); err != nil {
		r.fail(malformed("%s: %v", where, err))
	}
	switch s.Get("type").Text() {
	case "base64", "text":
		r.fetches(s, where, "data")
	case "content":
		r.blocks(s.Get("content"), where+".content")
	default: // url, file, and what may come
		r.fetch(where)
	}
}
