package inference

import (
	"fmt"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// facts are what a request asks for, whoever serves it.
type facts struct {
	op  operation
	doc strictjson.Value // in the spelling in which it is forwarded
	// model is the one that is asked for.
	model  string
	stream bool
	// usage tells that the client asked for usage at the end of a stream.
	usage bool
	// remote are the places that name something for the provider to fetch.
	remote []string
	// tools are the types of tools, fields and parts that the provider acts on
	// by itself.
	tools []string
	// stored is the field that refers to a part of the conversation that is not
	// in the request, or "".
	stored string
	// dearer is the field that asks for a service at another price, or "".
	dearer string
	// output is the most tokens that each answer may have; 0: not said.
	// outputAt are the fields that say so.
	output   int64
	outputAt []string
	// choices is the number of answers.
	choices int64
	// least is the smallest limit of output tokens that makes sense.
	least int64
	// input is an estimate of the tokens sent.
	input int64
	uses  []toolUse
}

// reader collects the facts; what is malformed stops it.
type reader struct {
	facts
	bad *Denial
}

// read gives the facts of a body.
func read(e endpoint, body []byte) (*facts, *Denial) {
	doc, err := strictjson.Parse(body)
	if err != nil {
		return nil, malformed("%s", strings.TrimPrefix(err.Error(), "parse JSON: "))
	}
	if doc.Kind() != strictjson.Object {
		return nil, malformed("the request's body is not a JSON object")
	}
	r := &reader{facts: facts{op: e.op, doc: doc, choices: 1, least: 1, stream: e.stream}}
	if e.family == Gemini {
		r.respell()
	}
	r.top()
	switch e.op {
	case opChat, opCompletions:
		r.chat()
	case opResponses:
		r.responses()
	case opEmbeddings:
	case opMessages, opCountTokens:
		r.messages()
	case opGenerate, opGeminiCount, opEmbed, opBatchEmbed:
		r.generate(e)
	default:
		r.ollama()
	}
	if e.family != Gemini {
		r.modelAt(e)
	}
	r.input = estimate(r.doc)
	return &r.facts, r.bad
}

// fail keeps the first mistake.
func (r *reader) fail(d *Denial) {
	if r.bad == nil {
		r.bad = d
	}
}

// top looks at the names of the body's members.
func (r *reader) top() {
	r.known(r.doc, r.op.names(), "")
	for _, name := range []string{"service_tier", "serviceTier", "speed"} {
		switch strings.ToLower(r.doc.Get(name).Text()) {
		case "", "null", "auto", "default", "flex", "batch", "standard", "standard_only", "normal":
		default:
			r.dearer = name
		}
	}
}

// known refuses names that are spelt in another case, and notes those that are
// not understood.
func (r *reader) known(v strictjson.Value, names map[string]bool, where string) {
	for _, m := range v.Members() {
		lower := strings.ToLower(m.Name)
		switch {
		case names[m.Name]:
		case neverNames[lower] || neverNames[strings.ReplaceAll(lower, "-", "_")]:
			r.fail(malformed("field %s may name another model, server or way beside the one that counts", quote(where+m.Name)))
		case folded(names, m.Name):
			r.fail(malformed("field %s is spelt in another case than the one that counts", quote(where+m.Name)))
		default:
			r.tools = append(r.tools, m.Name)
		}
	}
}

// folded tells whether a name is one of names but for its case.
func folded(names map[string]bool, name string) bool {
	for n := range names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// modelAt takes the model from its one place.
func (r *reader) modelAt(e endpoint) {
	v := r.doc.Get("model")
	switch {
	case v.Kind() == strictjson.Invalid:
		r.fail(malformed("the request names no model"))
	case v.Kind() != strictjson.String || !isModel(v.Text()):
		r.fail(malformed("field \"model\" is not the name of a model"))
	case e.model != "" && e.model != v.Text():
		r.fail(malformed("path and body name different models"))
	}
	r.model = v.Text()
}

// flag gives a boolean member.
func (r *reader) flag(v strictjson.Value, name string, absent bool) bool {
	m := v.Get(name)
	switch m.Kind() {
	case strictjson.Invalid, strictjson.Null:
		return absent
	case strictjson.Bool:
		return m.Text() == "true"
	}
	r.fail(malformed("field %q is neither true nor false", name))
	return false
}

// count gives a member that is a whole number from least on; 0 when absent.
func (r *reader) count(v strictjson.Value, name string, least int64) int64 {
	m := v.Get(name)
	if m.Kind() == strictjson.Invalid || m.Kind() == strictjson.Null {
		return 0
	}
	n, ok := m.Int()
	if !ok || n < least || n > 1<<40 {
		r.fail(malformed("field %q is not a whole number from %d on", name, least))
		return 0
	}
	return n
}

// limits reads the fields that bound the output. Two of them must agree.
func (r *reader) limits(v strictjson.Value, prefix string, names ...string) {
	for _, name := range names {
		n := r.count(v, name, 1)
		if n == 0 {
			continue
		}
		if r.output != 0 && r.output != n {
			r.fail(malformed("fields %q and %q bound the output differently", r.outputAt[0], name))
		}
		r.output = n
		r.outputAt = append(r.outputAt, prefix+"/"+name)
	}
}

// fetch notes a place that names something for the provider to fetch.
func (r *reader) fetch(where string) {
	if len(r.remote) < 8 {
		r.remote = append(r.remote, where)
	}
}

// fetches notes every string below v that is a reference and not the thing
// itself. Names in texts hold text that nobody follows.
func (r *reader) fetches(v strictjson.Value, where string, texts ...string) {
	switch v.Kind() {
	case strictjson.String:
		if isReference(v.Text()) {
			r.fetch(where)
		}
	case strictjson.Array:
		for i, item := range v.Items() {
			r.fetches(item, fmt.Sprintf("%s[%d]", where, i), texts...)
		}
	case strictjson.Object:
		for _, m := range v.Members() {
			if !isAmong(m.Name, texts) {
				r.fetches(m.Value, where+"."+m.Name, texts...)
			}
		}
	}
}

// fetched are the schemes that servers follow also without "//".
var fetched = []string{"http", "https", "ftp", "ftps", "file", "gs", "s3", "az", "hf", "blob", "ws", "wss"}

// isReference tells a URL that is followed from one that holds its data. Blanks
// and control bytes are left out as URL parsers leave them out.
func isReference(s string) bool {
	head := strings.Map(func(c rune) rune {
		if c <= ' ' || c == 0x7f || c == 0xa0 || c == 0xfeff {
			return -1
		}
		return c
	}, s[:min(len(s), 256)])
	if strings.HasPrefix(head, "//") || strings.HasPrefix(head, `\\`) {
		return true // the scheme is whoever's reads it
	}
	scheme, _, ok := strings.Cut(head, ":")
	if !ok || strings.EqualFold(scheme, "data") {
		return false
	}
	// One URL may stand inside another: jar:https://example.org/x!/y.
	return strings.Contains(head, "://") || isAmong(strings.ToLower(scheme), fetched)
}

func isAmong(s string, list []string) bool {
	for _, x := range list {
		if s == x {
			return true
		}
	}
	return false
}

// mediaTokens is what one image or recording in a request counts in an estimate.
const mediaTokens = 1500

// estimate gives about how many tokens a request's text has.
func estimate(v strictjson.Value) int64 {
	bytes, media := weigh(v, "")
	return (bytes+3)/4 + media*mediaTokens
}

func weigh(v strictjson.Value, name string) (bytes, media int64) {
	switch v.Kind() {
	case strictjson.String:
		if isData(name, v.Text()) {
			return 0, 1
		}
		return int64(len(v.Text())), 0
	case strictjson.Number, strictjson.Bool:
		return int64(len(v.Text())), 0
	}
	for _, item := range v.Items() {
		b, m := weigh(item, name)
		bytes, media = bytes+b, media+m
	}
	textual := isText(v)
	for _, member := range v.Members() {
		inside := member.Name
		if textual {
			inside = ""
		}
		b, m := weigh(member.Value, inside)
		bytes, media = bytes+b+int64(len(member.Name)), media+m
	}
	return bytes, media
}

// isText tells whether what an object holds as data is text, whose length counts.
func isText(v strictjson.Value) bool {
	if v.Get("type").IsString("text") {
		return true
	}
	for _, name := range []string{"media_type", "mimeType", "mime_type"} {
		if isTextType(v.Get(name).Text()) {
			return true
		}
	}
	return false
}

func isTextType(media string) bool {
	media = strings.ToLower(media)
	return strings.HasPrefix(media, "text/") || strings.Contains(media, "json") || strings.Contains(media, "xml") || strings.Contains(media, "script")
}

// isData tells media in base64 from text.
func isData(name, s string) bool {
	if len(s) < 1024 {
		return false
	}
	if rest, ok := strings.CutPrefix(s, "data:"); ok {
		head, data, _ := strings.Cut(rest, ",")
		return len(head) < 200 && strings.HasSuffix(head, ";base64") && !isTextType(head) && isBase64(data)
	}
	return isAmong(name, []string{"data", "file_data", "images", "image"}) && isBase64(s)
}

func isBase64(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte("+/=-_\r\n", c) < 0 {
			return false
		}
	}
	return true
}
