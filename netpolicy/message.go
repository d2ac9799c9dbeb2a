package netpolicy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

const defaultMaxMessage = 1 << 20

// message is one compiled clause about messages.
type message struct {
	pos policy.Pos

	paths, loose  []pathGlob // websocket
	maxMessage    int64
	json          []place
	calls, tools  []textGlob
	args          []place
	op            string
	repos, refs   []textGlob
	operations    []string
	names, fields []textGlob
}

// place is a place in JSON and the pattern of the value there.
type place struct {
	pointer string
	glob    textGlob
	number  float64 // of a pattern that is one
	isNum   bool
}

// parseMessage compiles a clause of a rule whose messages are judged.
func parseMessage(p policy.Protocol, m policy.Match, denies bool) (message, error) {
	c := message{pos: m.Pos, maxMessage: int64(m.MaxMessage), op: m.Op, operations: m.Operations}
	if err := checkFields(p, m, denies); err != nil {
		return c, err
	}
	for _, text := range m.Paths {
		g, err := parsePathGlob(text)
		if err != nil {
			return c, fmt.Errorf("path %q: %w", text, err)
		}
		c.paths = append(c.paths, g)
		c.loose = append(c.loose, g.loose())
	}
	for _, f := range []struct {
		to   *[]textGlob
		from []string
	}{
		{&c.calls, m.Calls}, {&c.tools, m.Tools}, {&c.repos, m.Repos}, {&c.refs, m.Refs}, {&c.names, m.Names}, {&c.fields, m.Fields},
	} {
		var err error
		if *f.to, err = parseTextGlobs(f.from); err != nil {
			return c, err
		}
	}
	var err error
	if c.json, err = parsePlaces(m.JSON); err != nil {
		return c, err
	}
	if c.args, err = parsePlaces(m.Args); err != nil {
		return c, err
	}
	if p == policy.ProtocolMCP {
		return c, c.completeTools()
	}
	return c, nil
}

// completeTools lets a clause about tools mean calls of tools.
func (c *message) completeTools() error {
	if c.calls == nil && (c.tools != nil || c.args != nil) {
		c.calls, _ = parseTextGlobs([]string{toolsCall})
	}
	if c.tools != nil && !fitsOne(c.calls, toolsCall) {
		return errors.New("tools are called by tools/call, which calls leaves out")
	}
	return nil
}

// checkFields refuses what has no meaning in the protocol: a clause that seems
// to say more than it does is a mistake.
func checkFields(p policy.Protocol, m policy.Match, denies bool) error {
	present := []struct {
		name string
		set  bool
		in   []policy.Protocol
	}{
		{"methods", m.Methods != nil, nil},
		{"paths", m.Paths != nil, []policy.Protocol{policy.ProtocolWebSocket}},
		{"query", m.Query != nil, nil},
		{"headers", m.Headers != nil, nil},
		{"max_body", m.MaxBody != 0, nil},
		{"max_message", m.MaxMessage != 0, []policy.Protocol{policy.ProtocolWebSocket}},
		{"json", m.JSON != nil, []policy.Protocol{policy.ProtocolWebSocket}},
		{"calls", m.Calls != nil, []policy.Protocol{policy.ProtocolMCP, policy.ProtocolJSONRPC, policy.ProtocolGRPC}},
		{"tools", m.Tools != nil, []policy.Protocol{policy.ProtocolMCP}},
		{"args", m.Args != nil, []policy.Protocol{policy.ProtocolMCP, policy.ProtocolJSONRPC}},
		{"op", m.Op != "", []policy.Protocol{policy.ProtocolGit}},
		{"repos", m.Repos != nil, []policy.Protocol{policy.ProtocolGit}},
		{"refs", m.Refs != nil, []policy.Protocol{policy.ProtocolGit}},
		{"operations", m.Operations != nil, []policy.Protocol{policy.ProtocolGraphQL}},
		{"names", m.Names != nil, []policy.Protocol{policy.ProtocolGraphQL}},
		{"fields", m.Fields != nil, []policy.Protocol{policy.ProtocolGraphQL}},
	}
	for _, f := range present {
		ok := slices.Contains(f.in, p) || f.in == nil && p == policy.ProtocolHTTP || f.name == "paths" && p == policy.ProtocolHTTP
		if f.set && !ok {
			return fmt.Errorf("%s has no meaning in a rule with protocol %s", f.name, p)
		}
	}
	return checkValues(m, denies)
}

func checkValues(m policy.Match, denies bool) error {
	switch {
	case denies && m.MaxMessage != 0:
		return errors.New("max_message has no meaning in deny")
	case denies && m.MaxBody != 0:
		return errors.New("max_body has no meaning in deny")
	case m.MaxMessage < 0 || m.MaxBody < 0:
		return errors.New("a size below 0")
	case m.Op != "" && m.Op != opFetch && m.Op != opPush:
		return fmt.Errorf("unknown op %q: fetch or push", m.Op)
	case m.Op == opFetch && m.Refs != nil:
		return errors.New("refs are about pushes, but op is fetch")
	case m.Paths != nil && len(m.Paths) == 0, m.Operations != nil && len(m.Operations) == 0, m.Headers != nil && len(m.Headers) == 0,
		m.JSON != nil && len(m.JSON) == 0, m.Args != nil && len(m.Args) == 0:
		return errors.New("empty list, which matches nothing")
	}
	for _, kind := range m.Operations {
		if !slices.Contains(operationKinds, kind) {
			return fmt.Errorf("unknown operation %q: query, mutation or subscription", kind)
		}
	}
	return nil
}

func parsePlaces(m map[string]string) ([]place, error) {
	var out []place
	for _, pointer := range slices.Sorted(maps.Keys(m)) {
		if !strings.HasPrefix(pointer, "/") {
			return nil, fmt.Errorf("%q is not a JSON pointer to a place below the root", pointer)
		}
		g, err := parseTextGlob(m[pointer])
		if err != nil {
			return nil, fmt.Errorf("pattern at %q: %w", pointer, err)
		}
		p := place{pointer: pointer, glob: g}
		p.number, err = strconv.ParseFloat(m[pointer], 64)
		p.isNum = err == nil
		out = append(out, p)
	}
	return out, nil
}

// fitAll tells whether at every place there is one value, and it fits.
func fitAll(places []place, v strictjson.Value) bool {
	for i := range places {
		at, err := v.Lookup(places[i].pointer)
		if err != nil || !places[i].fits(at) {
			return false
		}
	}
	return true
}

// touchAll tells whether at every place there is something that touches. Where
// readers could differ about what is there, it does.
func touchAll(places []place, v strictjson.Value) bool {
	for i := range places {
		at, err := v.Lookup(places[i].pointer)
		if err == nil && at.Kind() == strictjson.Invalid && places[i].isOtherwise(v) {
			at = v
		}
		if err == nil && !places[i].touches(at) {
			return false
		}
	}
	return true
}

// isOtherwise tells whether arguments are by position where the place is by
// name, or the other way round (JSON-RPC takes both): nobody can tell which of
// them is meant, so that each of them is.
func (p *place) isOtherwise(v strictjson.Value) bool {
	step, _, _ := strings.Cut(p.pointer[1:], "/")
	_, err := strconv.ParseUint(step, 10, 31)
	return v.Kind() == strictjson.Array && err != nil || v.Kind() == strictjson.Object && err == nil
}

func (p *place) fits(v strictjson.Value) bool {
	switch v.Kind() {
	case strictjson.String, strictjson.Number, strictjson.Bool:
		return p.glob.fits(v.Text())
	default:
		return false
	}
}

// touches looks into lists and objects: a tool may take one path or several.
func (p *place) touches(v strictjson.Value) bool {
	switch v.Kind() {
	case strictjson.Array:
		return slices.ContainsFunc(v.Items(), p.touches)
	case strictjson.Object:
		return slices.ContainsFunc(v.Members(), func(m strictjson.Member) bool { return p.touches(m.Value) })
	case strictjson.Number:
		n, err := strconv.ParseFloat(v.Text(), 64)
		if err == nil && (p.isNum && n == p.number || p.glob.touches(strconv.FormatFloat(n, 'f', -1, 64))) {
			return true
		}
		return p.glob.touches(v.Text())
	case strictjson.String, strictjson.Bool, strictjson.Null:
		return p.glob.touches(v.Text())
	default:
		return false
	}
}

func (c *message) fitsCall(call *Call) bool {
	return fitsOne(c.calls, call.Method) && (c.tools == nil || fitsOne(c.tools, call.Tool)) && fitAll(c.args, call.Args)
}

func (c *message) touchesCall(call *Call) bool {
	return touchesOne(c.calls, call.Method) && (c.tools == nil || touchesOne(c.tools, call.Tool)) && touchAll(c.args, call.Args)
}

// fitsTool tells whether some call of the tool fits.
func (c *message) fitsTool(tool string) bool {
	return fitsOne(c.calls, toolsCall) && fitsOne(c.tools, tool)
}

// touchesTool tells whether every call of the tool is touched.
func (c *message) touchesTool(tool string) bool {
	return touchesOne(c.calls, toolsCall) && touchesOne(c.tools, tool) && c.args == nil
}

// fitsGit tells whether the request fits; while the refs of a push are not
// known, whether some push could.
func (c *message) fitsGit(r *GitRequest) bool {
	if c.op != "" && c.op != r.Op || !fitsOne(c.repos, r.Repo) {
		return false
	}
	if r.Op == opFetch {
		return c.refs == nil
	}
	for _, ref := range r.Refs {
		if !fitsOne(c.refs, ref) {
			return false
		}
	}
	return true
}

// touchesGit tells whether the request touches the clause, whatever its refs
// while those are not known.
func (c *message) touchesGit(r *GitRequest) bool {
	if c.op != "" && c.op != r.Op || !touchesOne(c.repos, r.Repo) {
		return false
	}
	if c.refs == nil {
		return true
	}
	return slices.ContainsFunc(r.Refs, func(ref string) bool { return touchesOne(c.refs, ref) })
}

func (c *message) fitsOperation(o *Operation) bool {
	if c.operations != nil && !slices.Contains(c.operations, o.Kind) || c.names != nil && (o.Name == "" || !fitsOne(c.names, o.Name)) {
		return false
	}
	return c.fields == nil || len(o.Fields) > 0 && !slices.ContainsFunc(o.Fields, func(f string) bool { return !fitsOne(c.fields, f) })
}

func (c *message) touchesOperation(o *Operation) bool {
	if c.operations != nil && !slices.Contains(c.operations, o.Kind) || c.names != nil && (o.Name == "" || !touchesOne(c.names, o.Name)) {
		return false
	}
	return c.fields == nil || slices.ContainsFunc(o.Fields, func(f string) bool { return touchesOne(c.fields, f) })
}

func (c *message) fitsMessage(m *Message) bool {
	if m.Size < 0 || m.Size > c.largest() {
		return false
	}
	return c.json == nil || m.Text && m.JSON.Kind() != strictjson.Invalid && fitAll(c.json, m.JSON)
}

// touchesMessage also holds for what cannot be read: a server may read more
// than the proxy does.
func (c *message) touchesMessage(m *Message) bool {
	return c.json == nil || m.JSON.Kind() == strictjson.Invalid || touchAll(c.json, m.JSON)
}

func (c *message) largest() int64 {
	if c.maxMessage == 0 {
		return defaultMaxMessage
	}
	return c.maxMessage
}

// fitsPath tells whether a WebSocket at the path may carry what fits.
func (c *message) fitsPath(path string) bool {
	return len(c.paths) == 0 || matchPath(c.paths, path)
}

// touchesPath is fitsPath for denials.
func (c *message) touchesPath(r *Request) bool {
	return len(c.paths) == 0 || touchPath(c.paths, c.loose, r)
}
