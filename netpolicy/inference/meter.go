package inference

import (
	"bytes"
	"encoding/json"
	"strings"
)

// The bounds of what is held of an answer to read its usage.
const (
	maxEvent  = 1 << 20 // of a stream; a longer one is passed on unread
	maxAnswer = 8 << 20 // in one piece
)

// Meter reads what a call used from its answer, while that is passed on.
type Meter struct {
	target  *Target
	framing framing
	hides   bool

	line    []byte // a line of a stream, so far
	data    []byte // the data of an event, so far
	whole   []byte // an answer in one piece
	pending []byte // an event that may not be passed on until it is whole
	skip    bool   // the event is longer than what is held

	usage  Usage
	input  bool // the provider said it
	output bool
	closed bool // the provider said that this is the end
	text   int64
	deaf   bool // nothing is read any more
}

// framing is how the pieces of an answer are told apart.
type framing uint8

const (
	inOne framing = iota
	inEvents
	inLines
)

// Measure begins to read an answer. contentType is its field.
func (t *Target) Measure(contentType string) *Meter {
	m := &Meter{target: t}
	media, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(media)) {
	case "text/event-stream":
		m.framing, m.hides = inEvents, t.HidesUsage
	case "application/x-ndjson", "application/jsonl", "application/x-jsonlines":
		m.framing = inLines
	}
	return m
}

// Changes tells whether the answer's length can change on its way.
func (m *Meter) Changes() bool { return m.hides }

// Pass reads a piece of the answer and gives what of it goes on to the client;
// the slice holds until the next call.
func (m *Meter) Pass(p []byte) []byte {
	switch {
	case m.deaf:
		m.text += int64(len(p))
		return p
	case m.framing == inOne:
		if len(m.whole)+len(p) <= maxAnswer {
			m.whole = append(m.whole, p...)
		} else {
			m.whole, m.skip = nil, true
		}
		m.text += int64(len(p))
		return p
	case !m.hides:
		for _, c := range bytes.SplitAfter(p, []byte{'\n'}) {
			m.lines(c)
		}
		return p
	}
	var out []byte
	for _, c := range bytes.SplitAfter(p, []byte{'\n'}) {
		m.pending = append(m.pending, c...)
		if whole, ours := m.lines(c); whole {
			if !ours {
				out = append(out, m.pending...)
			}
			m.pending = m.pending[:0]
		} else if m.skip || len(m.pending) > maxEvent {
			out = append(out, m.pending...)
			m.pending = m.pending[:0]
			m.skip = true
		}
	}
	return out
}

// Rest gives what was held when the answer ended.
func (m *Meter) Rest() []byte {
	rest := m.pending
	m.pending = nil
	return rest
}

// Held is how many bytes of the answer are in memory.
func (m *Meter) Held() int64 {
	return int64(cap(m.line) + cap(m.data) + cap(m.whole) + cap(m.pending))
}

// GiveUp reads no more of the answer, which is then estimated by its length. It
// gives what was held back of it.
func (m *Meter) GiveUp() []byte {
	rest := m.pending
	m.text += int64(len(m.line) + len(m.data))
	m.line, m.data, m.whole, m.pending = nil, nil, nil, nil
	m.deaf, m.skip, m.hides = true, true, false
	return rest
}

// lines takes a piece of at most one line. whole tells that it ended an event,
// and ours that the event is the usage that only we asked for.
func (m *Meter) lines(piece []byte) (whole, ours bool) {
	if len(m.line)+len(piece) > maxEvent {
		m.skip = true
		m.text += int64(len(m.line) + len(piece))
		m.line = m.line[:0]
	} else {
		m.line = append(m.line, piece...)
	}
	if len(piece) == 0 || piece[len(piece)-1] != '\n' {
		return false, false
	}
	line := bytes.TrimRight(m.line, "\r\n")
	defer func() { m.line = m.line[:0] }()
	if m.framing == inLines {
		m.piece(line)
		return true, false
	}
	if len(line) > 0 {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && len(m.data)+len(data) <= maxEvent {
			if len(m.data) > 0 {
				m.data = append(m.data, '\n')
			}
			m.data = append(m.data, bytes.TrimPrefix(data, []byte(" "))...)
		}
		return false, false
	}
	skipped := m.skip
	m.skip = false
	ours = m.piece(m.data) && !skipped
	m.data = m.data[:0]
	return true, ours
}

// piece reads one event and tells whether it is nothing but OpenAI's usage.
func (m *Meter) piece(data []byte) bool {
	if len(data) == 0 {
		return false
	}
	if string(data) == "[DONE]" {
		m.closed = true
		return false
	}
	var v map[string]any
	if json.Unmarshal(data, &v) != nil {
		m.text += int64(len(data))
		return false
	}
	m.object(v)
	choices, isList := v["choices"].([]any)
	_, hasUsage := v["usage"].(map[string]any)
	return isList && len(choices) == 0 && hasUsage
}

// object reads a part of an answer, or all of it.
func (m *Meter) object(v map[string]any) {
	kind, _ := v["type"].(string)
	switch kind {
	case "message_stop", "response.completed", "response.incomplete", "response.failed":
		m.closed = true
	}
	m.usageIn(v["usage"])
	for _, name := range []string{"response", "message", "x_groq"} {
		if inner, ok := v[name].(map[string]any); ok {
			m.usageIn(inner["usage"])
		}
	}
	m.usageIn(v["usageMetadata"])
	if m.target.op.ollama() {
		m.usageIn(v)
		if done, ok := v["done"].(bool); ok && done {
			m.closed = true
		}
	}
	if !strings.HasPrefix(kind, "response.") || strings.HasSuffix(kind, ".delta") {
		m.text += textIn(v, "")
	}
}

// usageIn takes the numbers of an object of usage, in any provider's names. They
// grow while a stream goes on, so the largest counts.
func (m *Meter) usageIn(v any) {
	u, ok := v.(map[string]any)
	if !ok {
		return
	}
	take := func(to *int64, said *bool, names ...string) {
		var sum int64
		found := false
		for _, name := range names {
			if f, ok := u[name].(float64); ok && f >= 0 && f < 1<<50 {
				sum += int64(f)
				found = true
			}
		}
		if found {
			*to = max(*to, sum)
			*said = true
		}
	}
	ignored := false
	switch {
	case m.target.op == opMessages:
		take(&m.usage.Input, &m.input, "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
		take(&m.usage.CachedInput, &ignored, "cache_read_input_tokens")
		take(&m.usage.Output, &m.output, "output_tokens")
	case m.target.op == opGenerate, m.target.op == opEmbed, m.target.op == opBatchEmbed:
		take(&m.usage.Input, &m.input, "promptTokenCount", "toolUsePromptTokenCount")
		take(&m.usage.CachedInput, &ignored, "cachedContentTokenCount")
		take(&m.usage.Output, &m.output, "candidatesTokenCount", "thoughtsTokenCount")
	case m.target.op.ollama():
		take(&m.usage.Input, &m.input, "prompt_eval_count")
		take(&m.usage.Output, &m.output, "eval_count")
	default:
		take(&m.usage.Input, &m.input, "prompt_tokens")
		take(&m.usage.Input, &m.input, "input_tokens")
		take(&m.usage.Output, &m.output, "completion_tokens")
		take(&m.usage.Output, &m.output, "output_tokens")
		for _, name := range []string{"prompt_tokens_details", "input_tokens_details"} {
			if details, ok := u[name].(map[string]any); ok {
				if f, ok := details["cached_tokens"].(float64); ok && f >= 0 && f < 1<<50 {
					m.usage.CachedInput = max(m.usage.CachedInput, int64(f))
				}
			}
		}
	}
}

// written are the members of answers in which models write.
var written = map[string]bool{
	"content": true, "text": true, "reasoning": true, "reasoning_content": true, "thinking": true, "arguments": true,
	"partial_json": true, "refusal": true, "response": true, "delta": true, "args": true, "input": true, "output": true,
}

// textIn counts the bytes that a model wrote.
func textIn(v any, name string) int64 {
	var n int64
	switch v := v.(type) {
	case string:
		if written[name] {
			return int64(len(v))
		}
	case []any:
		for _, item := range v {
			n += textIn(item, name)
		}
	case map[string]any:
		inside := name == "args" || name == "input" // of a tool: every name is the model's
		for key, item := range v {
			if inside {
				key = name
			}
			n += textIn(item, key)
		}
	}
	return n
}

// End gives what the call used, once the answer is over. whole tells that it came
// to its end and was not cut off.
func (m *Meter) End(whole bool, h *Hold) Usage {
	if m.target.op.free() {
		return Usage{}
	}
	if m.framing == inOne {
		m.readWhole()
	} else if !m.deaf && (len(m.data) > 0 || len(m.line) > 0) {
		m.piece(m.data)
		if m.usage == (Usage{}) && m.text == 0 { // no line end that is known
			m.text = int64(len(m.line))
		}
	}
	u := m.usage
	if !whole && !m.closed && m.unseen() {
		full := h.Full()
		u.Input, u.Output, u.Estimated = max(u.Input, full.Input), max(u.Output, full.Output), true
		return u
	}
	silent := !m.target.op.writes()
	u.Estimated = !m.input || !m.output && !silent || !m.closed && !whole
	if u.Estimated {
		u.Input = max(u.Input, m.target.Need.Input)
		if !silent {
			u.Output = max(u.Output, (m.text+3)/4)
		}
	}
	return u
}

// unseen tells of an answer that was cut off that nothing can be told by what was
// seen of it: an answer in one piece is billed whole, and a stream may have begun
// with thoughts that nobody is shown.
func (m *Meter) unseen() bool {
	said := m.output && m.target.op != opMessages // Anthropic says 1 as it begins
	return m.framing == inOne || m.text == 0 && !said
}

// readWhole reads an answer that came in one piece.
func (m *Meter) readWhole() {
	var v any
	if m.skip || json.Unmarshal(m.whole, &v) != nil {
		return // the estimate is by its length
	}
	m.text = 0
	switch v := v.(type) {
	case map[string]any:
		m.object(v)
	case []any: // Gemini's streams without alt=sse
		for _, item := range v {
			if part, ok := item.(map[string]any); ok {
				m.object(part)
			}
		}
	}
}
