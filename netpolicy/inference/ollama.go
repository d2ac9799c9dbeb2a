package inference

import (
	"fmt"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// ollama reads a request of Ollama's own API.
func (r *reader) ollama() {
	r.stream = r.op != opOllamaEmbed && r.op != opOllamaShow && r.flag(r.doc, "stream", true)
	options := r.doc.Get("options")
	if err := options.Exact("num_predict"); err != nil {
		r.fail(malformed("options: %v", err))
	}
	// Below 0 it means without end, which is as if it were not there.
	if n, ok := options.Get("num_predict").Int(); !ok || n >= 0 {
		r.limits(options, "/options", "num_predict")
	}
	for _, t := range r.doc.Get("tools").Items() {
		if kind := t.Get("type"); kind.Kind() != strictjson.Invalid && !kind.IsString("function") {
			r.tools = append(r.tools, kind.Text())
		}
	}
	r.fetches(r.doc.Get("images"), "images")
	r.exact(r.doc.Get("messages"), "messages", "role", "content", "images", "tool_calls", "tool_name")
	for i, m := range r.doc.Get("messages").Items() {
		where := fmt.Sprintf("messages[%d]", i)
		r.fetches(m.Get("images"), where+".images")
		r.extras(m, where)
	}
	r.uses = chatTurns(r.doc.Get("messages"))
}
