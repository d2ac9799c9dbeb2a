package inference

import (
	"fmt"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// respell gives the members that are decided by the one spelling in which they
// are forwarded: the API takes them with "_" as well, and a body with both would
// have two meanings.
func (r *reader) respell() {
	r.doc = r.camel(r.doc, 0)
}

// openNames are members whose insides are the client's own.
var openNames = []string{
	"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema", "labels", "properties",
	"responseFormat",
}

func (r *reader) camel(v strictjson.Value, depth int) strictjson.Value {
	switch v.Kind() {
	case strictjson.Array:
		items := make([]strictjson.Value, 0, len(v.Items()))
		for _, item := range v.Items() {
			items = append(items, r.camel(item, depth+1))
		}
		return strictjson.ListOf(items...)
	case strictjson.Object:
		seen := map[string]bool{}
		members := make([]strictjson.Member, 0, len(v.Members()))
		for _, m := range v.Members() {
			m.Name = camelName(m.Name)
			if seen[strings.ToLower(m.Name)] {
				r.fail(malformed("field %s is there in two spellings", quote(m.Name)))
				continue
			}
			seen[strings.ToLower(m.Name)] = true
			if !isAmong(m.Name, openNames) {
				m.Value = r.camel(m.Value, depth+1)
			}
			members = append(members, m)
		}
		return strictjson.ObjectOf(members...)
	}
	return v
}

// camelName turns "file_uri" into "fileUri".
func camelName(s string) string {
	if !strings.Contains(s, "_") {
		return s
	}
	var b strings.Builder
	up := false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '_' && b.Len() > 0:
			up = true
		case up && c >= 'a' && c <= 'z':
			b.WriteByte(c - 'a' + 'A')
			up = false
		default:
			b.WriteByte(c)
			up = false
		}
	}
	return b.String()
}

// generate reads a request of the Gemini API.
func (r *reader) generate(e endpoint) {
	r.model = e.model
	r.sameModel(r.doc, e)
	r.geminiRequest(r.doc, "")
	for i, sub := range r.doc.Get("requests").Items() {
		r.known(sub, geminiNames, fmt.Sprintf("requests[%d].", i))
		r.sameModel(sub, e)
		r.geminiRequest(sub, fmt.Sprintf("requests[%d].", i))
	}
	if sub := r.doc.Get("generateContentRequest"); sub.Kind() == strictjson.Object {
		r.known(sub, geminiNames, "generateContentRequest.")
		r.sameModel(sub, e)
		r.geminiRequest(sub, "generateContentRequest.")
	}
}

// sameModel refuses a body that names another model than the path.
func (r *reader) sameModel(v strictjson.Value, e endpoint) {
	m := v.Get("model")
	if m.Kind() == strictjson.Invalid {
		return
	}
	if m.Kind() != strictjson.String || strings.TrimPrefix(m.Text(), "models/") != e.model {
		r.fail(malformed("path and body name different models"))
	}
}

func (r *reader) geminiRequest(v strictjson.Value, where string) {
	config := v.Get("generationConfig")
	if err := config.Exact("maxOutputTokens", "candidateCount"); err != nil {
		r.fail(malformed("%sgenerationConfig: %v", where, err))
	}
	if r.op == opGenerate && where == "" {
		r.limits(config, "/generationConfig", "maxOutputTokens")
		r.choices = max(r.count(config, "candidateCount", 1), 1)
	}
	if m := v.Get("cachedContent"); m.Kind() != strictjson.Invalid && m.Kind() != strictjson.Null {
		r.stored = where + "cachedContent"
	}
	r.geminiTools(v.Get("tools"), where+"tools")
	r.geminiContent(v.Get("systemInstruction"), where+"systemInstruction")
	r.geminiContent(v.Get("content"), where+"content")
	contents := v.Get("contents")
	if contents.Kind() == strictjson.Object {
		contents = strictjson.ListOf(contents)
	}
	for i, c := range contents.Items() {
		r.geminiContent(c, fmt.Sprintf("%scontents[%d]", where, i))
	}
	if where == "" {
		r.uses = geminiTurns(contents)
	}
}

// geminiTools notes what the provider runs itself: all but declared functions.
func (r *reader) geminiTools(list strictjson.Value, where string) {
	if list.Kind() == strictjson.Object {
		list = strictjson.ListOf(list)
	}
	for i, t := range list.Items() {
		if err := t.Exact("functionDeclarations"); err != nil {
			r.fail(malformed("%s[%d]: %v", where, i, err))
		}
		for _, m := range t.Members() {
			switch m.Name {
			case "functionDeclarations", "computerUse":
			case "urlContext", "mcpServers":
				r.fetch(where + "." + m.Name)
				r.tools = append(r.tools, snakeName(m.Name))
			default:
				r.tools = append(r.tools, snakeName(m.Name))
			}
		}
	}
}

// snakeName turns "googleSearch" into "google_search", as policies name it.
func snakeName(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
			b.WriteByte(c - 'A' + 'a')
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func (r *reader) geminiContent(c strictjson.Value, where string) {
	parts := c.Get("parts")
	if parts.Kind() == strictjson.Object {
		parts = strictjson.ListOf(parts)
	}
	for i, p := range parts.Items() {
		at := fmt.Sprintf("%s.parts[%d]", where, i)
		for _, m := range p.Members() {
			switch m.Name {
			case "text", "thought", "thoughtSignature", "functionCall", "executableCode", "codeExecutionResult",
				"videoMetadata", "partMetadata", "mediaResolution":
			case "inlineData":
				r.fetches(m.Value, at, "data", "displayName")
			case "functionResponse":
				for _, sub := range m.Value.Get("parts").Items() {
					if sub.Get("fileData").Kind() != strictjson.Invalid {
						r.fetch(at + ".functionResponse.fileData")
					}
				}
			case "fileData":
				r.fetch(at + ".fileData")
			default:
				r.tools = append(r.tools, "part."+m.Name)
			}
		}
	}
}
