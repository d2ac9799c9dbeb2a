package inference

import (
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// rewrite puts the model and our own wishes into the body.
func (t *Target) rewrite(e endpoint, f *facts, model string) {
	switch {
	case e.family != Gemini:
		t.doc = t.doc.With("model", strictjson.TextOf(model))
	case model != f.model:
		t.doc = renameGemini(t.doc, model)
	}
	if e.op == opChat && f.stream || e.op == opCompletions && f.stream {
		options := t.doc.Get("stream_options")
		t.options = options
		if options.Kind() != strictjson.Object {
			options = strictjson.ObjectOf()
		}
		t.doc = t.doc.With("stream_options", options.With("include_usage", strictjson.BoolOf(true)))
		t.HidesUsage = !f.usage
	}
}

// ForgoUsage takes back that usage is asked for at the end of a stream: some
// servers refuse the field. It must not be called when the client asked for it.
func (t *Target) ForgoUsage() {
	t.HidesUsage = false
	if t.options.Kind() == strictjson.Invalid {
		t.doc = t.doc.Without("stream_options")
		return
	}
	t.doc = t.doc.With("stream_options", t.options)
}

// renameGemini changes the model where a body repeats the path's.
func renameGemini(doc strictjson.Value, model string) strictjson.Value {
	name := strictjson.TextOf("models/" + model)
	if doc.Get("model").Kind() == strictjson.String {
		doc = doc.With("model", name)
	}
	if sub := doc.Get("generateContentRequest"); sub.Get("model").Kind() == strictjson.String {
		doc = doc.With("generateContentRequest", sub.With("model", name))
	}
	if list := doc.Get("requests"); list.Kind() == strictjson.Array {
		items := slices.Clone(list.Items())
		for i := range items {
			if items[i].Get("model").Kind() == strictjson.String {
				items[i] = items[i].With("model", name)
			}
		}
		doc = doc.With("requests", strictjson.ListOf(items...))
	}
	return doc
}

// cap bounds the tokens of each answer, in the fields that the client used and in
// the one that the provider reads. OpenAI refuses both of its names together; others
// read the older one, and some no other.
func (t *Target) cap(most int64) {
	at := t.limitsAt
	if field := t.limitField(); !slices.Contains(at, field) && (len(at) == 0 || field == "/max_tokens") {
		at = append(slices.Clone(at), field)
	}
	for _, pointer := range at {
		outer, name, nested := strings.Cut(pointer[1:], "/")
		if !nested {
			t.doc = t.doc.With(outer, strictjson.IntOf(most))
			continue
		}
		inside := t.doc.Get(outer)
		if inside.Kind() != strictjson.Object {
			inside = strictjson.ObjectOf()
		}
		t.doc = t.doc.With(outer, inside.With(name, strictjson.IntOf(most)))
	}
	t.limitsAt = at
}

// limitField is where a provider reads the limit. OpenAI itself refuses the
// older name for its newer models, others do not know the newer name.
func (t *Target) limitField() string {
	switch t.op {
	case opResponses:
		return "/max_output_tokens"
	case opGenerate:
		return "/generationConfig/maxOutputTokens"
	case opOllamaChat, opOllamaGenerate:
		return "/options/num_predict"
	case opChat:
		if host := t.Host.String(); host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
			return "/max_completion_tokens"
		}
	}
	return "/max_tokens"
}

// Body writes the body. each bounds the tokens of each answer further; 0: not.
func (t *Target) Body(each int64) []byte {
	if t.doc.Kind() != strictjson.Object {
		return nil
	}
	if each > 0 {
		t.cap(each)
	}
	return t.doc.Append(nil)
}
