package inference

import "strings"

// operation is what an endpoint does.
type operation uint8

// The operations. The zero value is none.
const (
	opNone operation = iota
	opChat
	opResponses
	opCompletions
	opEmbeddings
	opMessages
	opCountTokens
	opGenerate
	opGeminiCount
	opEmbed
	opBatchEmbed
	opOllamaChat
	opOllamaGenerate
	opOllamaEmbed
	opOllamaShow
	opList // of models
)

// counted tells whether the operation is a call of a model.
func (o operation) counted() bool { return o != opList && o != opOllamaShow && o != opNone }

// free tells whether the operation makes no tokens and is not charged by any.
func (o operation) free() bool {
	return !o.counted() || o == opCountTokens || o == opGeminiCount
}

// ollama tells the operations that only a local server has.
func (o operation) ollama() bool { return o >= opOllamaChat && o <= opOllamaShow }

// endpoint is one thing that a provider offers.
type endpoint struct {
	op operation
	// family is OpenAI for the local server's OpenAI endpoints, too, and Local
	// for Ollama's own.
	family Provider
	// rest is the path after the route's base.
	rest string
	// model is the one that the path names, or "".
	model string
	// stream tells that the path asks for a stream.
	stream bool
}

// fits tells whether a provider has the endpoint.
func (e endpoint) fits(p Provider) bool {
	if e.family == OpenAI {
		return p == OpenAI || p == Local
	}
	return e.family == p
}

// at recognises an endpoint of a route by the whole path.
func (r *route) at(method, path string) (endpoint, bool) {
	switch r.provider {
	case Anthropic:
		rest, ok := strings.CutPrefix(path, r.Base)
		e, known := anthropicAt(method, rest)
		return e, ok && known
	case Gemini:
		rest, ok := strings.CutPrefix(path, r.Base)
		e, known := geminiAt(method, rest)
		return e, ok && known
	case OpenAI, Local:
		if rest, ok := strings.CutPrefix(path, r.Base); ok {
			if e, known := openAIAt(method, rest); known {
				return e, true
			}
		}
		if r.provider == Local {
			if rest, ok := strings.CutPrefix(path, r.ollamaBase()); ok {
				return ollamaAt(method, rest)
			}
		}
	}
	return endpoint{}, false
}

// ollamaBase is the path before Ollama's own "/api".
func (r *route) ollamaBase() string { return strings.TrimSuffix(r.Base, "/v1") }

// path is where a route has the endpoint.
func (r *route) path(e endpoint) string {
	if e.family == Local {
		return r.ollamaBase() + e.rest
	}
	return r.Base + e.rest
}

// inner recognises an endpoint at the inner name, where the shape of the path
// says whose it is. A list of models has two readings; the header of the
// provider that asks for one tells them apart.
func inner(method, path string, header map[string][]string) (endpoint, bool) {
	if rest, ok := strings.CutPrefix(path, "/v1"); ok {
		if e, known := openAIAt(method, rest); known {
			if e.op == opList && len(header["Anthropic-Version"]) > 0 {
				return anthropicAt(method, path)
			}
			return e, true
		}
	}
	for _, at := range []func(method, path string) (endpoint, bool){anthropicAt, geminiAt, ollamaAt} {
		if e, known := at(method, path); known {
			return e, true
		}
	}
	return endpoint{}, false
}

func openAIAt(method, rest string) (endpoint, bool) {
	e := endpoint{family: OpenAI, rest: rest}
	switch method + " " + rest {
	case "POST /chat/completions":
		e.op = opChat
	case "POST /responses":
		e.op = opResponses
	case "POST /completions":
		e.op = opCompletions
	case "POST /embeddings":
		e.op = opEmbeddings
	case "GET /models":
		e.op = opList
	default:
		model, ok := strings.CutPrefix(rest, "/models/")
		if !ok || method != "GET" || !isModel(model) {
			return endpoint{}, false
		}
		e.op, e.model = opList, model
	}
	return e, true
}

func anthropicAt(method, rest string) (endpoint, bool) {
	e := endpoint{family: Anthropic, rest: rest}
	switch method + " " + rest {
	case "POST /v1/messages":
		e.op = opMessages
	case "POST /v1/messages/count_tokens":
		e.op = opCountTokens
	case "GET /v1/models":
		e.op = opList
	default:
		model, ok := strings.CutPrefix(rest, "/v1/models/")
		if !ok || method != "GET" || !isModel(model) {
			return endpoint{}, false
		}
		e.op, e.model = opList, model
	}
	return e, true
}

func geminiAt(method, rest string) (endpoint, bool) {
	e := endpoint{family: Gemini, rest: rest}
	name, ok := strings.CutPrefix(rest, "/v1beta/models")
	if !ok {
		name, ok = strings.CutPrefix(rest, "/v1/models")
	}
	switch {
	case !ok:
		return endpoint{}, false
	case method == "GET" && name == "":
		e.op = opList
		return e, true
	}
	if name, ok = strings.CutPrefix(name, "/"); !ok || strings.Contains(name, "/") {
		return endpoint{}, false
	}
	model, verb, hasVerb := strings.Cut(name, ":")
	e.model = model
	if !isModel(model) {
		return endpoint{}, false
	}
	if !hasVerb {
		e.op = opList
		return e, method == "GET"
	}
	switch verb {
	case "generateContent":
		e.op = opGenerate
	case "streamGenerateContent":
		e.op, e.stream = opGenerate, true
	case "countTokens":
		e.op = opGeminiCount
	case "embedContent":
		e.op = opEmbed
	case "batchEmbedContents":
		e.op = opBatchEmbed
	default:
		return endpoint{}, false
	}
	return e, method == "POST"
}

func ollamaAt(method, rest string) (endpoint, bool) {
	e := endpoint{family: Local, rest: rest}
	switch method + " " + rest {
	case "POST /api/chat":
		e.op, e.stream = opOllamaChat, true
	case "POST /api/generate":
		e.op, e.stream = opOllamaGenerate, true
	case "POST /api/embed":
		e.op = opOllamaEmbed
	case "POST /api/show":
		e.op = opOllamaShow
	case "GET /api/tags", "GET /api/version":
		e.op = opList
	default:
		return endpoint{}, false
	}
	return e, true
}
