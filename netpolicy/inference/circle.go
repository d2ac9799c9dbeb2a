package inference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// toolUse is one call of a tool in a conversation, and what came of it.
type toolUse struct {
	id, name string
	key      string // name and arguments, in one spelling
	done     bool
	failed   bool
	result   string
}

// history collects the calls of a conversation, in the order in which the model
// made them. In which order parallel calls were answered makes no difference.
type history struct {
	uses  []toolUse
	final bool // the model's last message called nothing
	// open are the calls without a result: by id the latest last; those without one
	// in order, by the tool's name and, under "", all of them.
	byID, byName map[string][]int
}

// call notes a call.
func (h *history) call(id, name, args string) {
	if h.byID == nil {
		h.byID, h.byName = map[string][]int{}, map[string][]int{}
	}
	at := len(h.uses)
	if id != "" {
		h.byID[id] = append(h.byID[id], at)
	} else {
		h.byName[""] = append(h.byName[""], at)
		if name != "" {
			h.byName[name] = append(h.byName[name], at)
		}
	}
	h.final = false
	h.uses = append(h.uses, toolUse{id: id, name: name, key: name + "\x00" + args})
}

// said notes a message of the model. It is final unless calls follow.
func (h *history) said() { h.final = true }

// asked notes a message of the user. After a final one of the model it begins
// something new; beside results of tools it is what a program adds.
func (h *history) asked() {
	if h.final {
		*h = history{}
	}
	h.final = false
}

// result notes what came of a call: the latest open one with this id, or
// without ids the first open one of the tool. Providers without ids answer in
// order.
func (h *history) result(id, name, text string, failed bool) {
	h.final = false
	if at, ok := h.take(id, name); ok {
		u := &h.uses[at]
		u.done, u.result, u.failed = true, text, failed || isFailure(text)
	}
}

// take gives the open call that a result is for.
func (h *history) take(id, name string) (at int, ok bool) {
	if open := h.byID[id]; id != "" && len(open) > 0 {
		h.byID[id] = open[:len(open)-1]
		return open[len(open)-1], true
	}
	if id != "" {
		return 0, false
	}
	open := h.byName[name]
	for len(open) > 0 && h.uses[open[0]].done { // found under its other name
		open = open[1:]
	}
	if len(open) == 0 {
		delete(h.byName, name)
		return 0, false
	}
	h.byName[name] = open[1:]
	return open[0], true
}

// circle tells whether a conversation turns in circles.
func circle(uses []toolUse, stop policy.HardStop) *Denial {
	type row struct {
		failures, same int
		result         string
	}
	rows := map[string]*row{}
	for i := range uses {
		u := &uses[i]
		if !u.done {
			continue
		}
		r := rows[u.key]
		if r == nil {
			r = &row{}
			rows[u.key] = r
		}
		if u.failed {
			r.failures++
		} else {
			r.failures = 0
		}
		if r.same == 0 || r.result != u.result {
			r.same, r.result = 0, u.result
		}
		r.same++
	}
	for i := range uses {
		r := rows[uses[i].key]
		switch {
		case r == nil:
		case stop.ExactFailure > 0 && r.failures >= stop.ExactFailure:
			return circling(stop, "exact_failure", "the same call of the tool %s failed %d times in a row", uses[i].name, r.failures)
		case stop.NoProgress > 0 && r.same >= stop.NoProgress:
			return circling(stop, "no_progress", "the same call of the tool %s gave the same result %d times in a row", uses[i].name, r.same)
		}
	}
	return nil
}

func circling(stop policy.HardStop, field, format, tool string, times int) *Denial {
	d := denied("the conversation turns in circles: "+format, quote(tool), times)
	d.Rule = "inference.hard_stop." + field
	d.Stop = stop.Action == "stop"
	return d
}

// chatTurns reads the messages of OpenAI's chat completions, and of Ollama's chat.
func chatTurns(messages strictjson.Value) []toolUse {
	var h history
	for _, m := range messages.Items() {
		switch m.Get("role").Text() {
		case "assistant":
			h.said()
			for _, c := range m.Get("tool_calls").Items() {
				f := c.Get("function")
				if f.Kind() != strictjson.Object {
					f = c.Get("custom")
				}
				args := f.Get("arguments")
				if args.Kind() == strictjson.Invalid {
					args = f.Get("input")
				}
				h.call(c.Get("id").Text(), f.Get("name").Text(), arguments(args))
			}
			if f := m.Get("function_call"); f.Kind() == strictjson.Object {
				h.call("", f.Get("name").Text(), arguments(f.Get("arguments")))
			}
		case "tool":
			h.result(m.Get("tool_call_id").Text(), m.Get("tool_name").Text(), textOf(m.Get("content")), false)
		case "function":
			h.result("", m.Get("name").Text(), textOf(m.Get("content")), false)
		case "user":
			h.asked()
		}
	}
	return h.uses
}

// responsesTurns reads the input of OpenAI's Responses API.
func responsesTurns(input strictjson.Value) []toolUse {
	var h history
	for _, item := range input.Items() {
		kind := item.Get("type").Text()
		id := item.Get("call_id").Text()
		switch {
		case kind == "" || kind == "message":
			switch item.Get("role").Text() {
			case "assistant":
				h.said()
			case "user":
				h.asked()
			}
		case strings.HasSuffix(kind, "_call_output"):
			failed := item.Get("status").IsString("failed")
			h.result(id, "", textOf(item.Get("output")), failed)
		case strings.HasSuffix(kind, "_call") && id != "":
			name, args := item.Get("name").Text(), item.Get("arguments")
			if name == "" {
				name = kind
			}
			for _, field := range []string{"input", "action", "operation"} {
				if args.Kind() == strictjson.Invalid {
					args = item.Get(field)
				}
			}
			h.call(id, name, arguments(args))
		}
	}
	return h.uses
}

// anthropicTurns reads the messages of Anthropic's API.
func anthropicTurns(messages strictjson.Value) []toolUse {
	var h history
	for _, m := range messages.Items() {
		blocks := m.Get("content").Items()
		switch m.Get("role").Text() {
		case "assistant":
			h.said()
			for _, b := range blocks {
				if b.Get("type").IsString("tool_use") {
					h.call(b.Get("id").Text(), b.Get("name").Text(), arguments(b.Get("input")))
				}
			}
		case "user":
			results := false
			for _, b := range blocks {
				if b.Get("type").IsString("tool_result") {
					results = true
					h.result(b.Get("tool_use_id").Text(), "", textOf(b.Get("content")), b.Get("is_error").Text() == "true")
				}
			}
			if !results {
				h.asked()
			}
		}
	}
	return h.uses
}

// geminiTurns reads the contents of the Gemini API.
func geminiTurns(contents strictjson.Value) []toolUse {
	var h history
	for _, c := range contents.Items() {
		parts := c.Get("parts").Items()
		if c.Get("role").IsString("model") {
			h.said()
			for _, p := range parts {
				if f := p.Get("functionCall"); f.Kind() == strictjson.Object {
					h.call(f.Get("id").Text(), f.Get("name").Text(), arguments(f.Get("args")))
				}
			}
			continue
		}
		results := false
		for _, p := range parts {
			if f := p.Get("functionResponse"); f.Kind() == strictjson.Object {
				results = true
				h.result(f.Get("id").Text(), f.Get("name").Text(), canonical(f.Get("response")), false)
			}
		}
		if !results {
			h.asked()
		}
	}
	return h.uses
}

// arguments gives the arguments of a call in one spelling, whether they are JSON
// or a text that holds some.
func arguments(v strictjson.Value) string {
	if v.Kind() == strictjson.String {
		inner, ok := nested(v.Text())
		if !ok {
			return strings.TrimSpace(v.Text())
		}
		v = inner
	}
	return canonical(v)
}

// maxNested bounds the values of JSON that stands in a text: each takes many times
// its length in memory.
const maxNested = 50_000

// nested reads JSON that stands in a text.
func nested(text string) (strictjson.Value, bool) {
	values := 0
	for i := range len(text) {
		if c := text[i]; c == ',' || c == ':' || c == '[' || c == '{' {
			values++
		}
	}
	if values > maxNested {
		return strictjson.Value{}, false
	}
	v, err := strictjson.Parse([]byte(text))
	return v, err == nil
}

// canonical writes a value with the members of objects in order.
func canonical(v strictjson.Value) string { return string(sorted(v).Append(nil)) }

func sorted(v strictjson.Value) strictjson.Value {
	switch v.Kind() {
	case strictjson.Array:
		items := make([]strictjson.Value, 0, len(v.Items()))
		for _, item := range v.Items() {
			items = append(items, sorted(item))
		}
		return strictjson.ListOf(items...)
	case strictjson.Object:
		members := slices.Clone(v.Members())
		for i := range members {
			members[i].Value = sorted(members[i].Value)
		}
		slices.SortFunc(members, func(a, b strictjson.Member) int { return strings.Compare(a.Name, b.Name) })
		return strictjson.ObjectOf(members...)
	}
	return v
}

// textOf gives the text of a tool's result: a string, or parts.
func textOf(v strictjson.Value) string {
	switch v.Kind() {
	case strictjson.String:
		return strings.TrimSpace(v.Text())
	case strictjson.Array:
		var b strings.Builder
		for _, p := range v.Items() {
			if t := p.Get("text"); t.Kind() == strictjson.String {
				fmt.Fprintln(&b, t.Text())
			} else {
				fmt.Fprintln(&b, canonical(p))
			}
		}
		return strings.TrimSpace(b.String())
	}
	return canonical(v)
}
