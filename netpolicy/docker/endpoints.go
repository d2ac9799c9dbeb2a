package docker

import (
	"strings"
	"sync"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// endpoints is everything that may be asked of an engine. What is missing was
// left out on purpose: what builds, loads, commits or renames images, because
// their names are what the policy judges by; volumes, networks, plugins, secrets
// and swarms; events and what shows containers of others; archives, which the
// engine unpacks as root.
var endpoints = sync.OnceValue(func() []endpoint {
	get, post, head := "GET", "POST", "HEAD"
	streams := map[string]func(string) bool{"logs": isBool, "stream": isBool, "stdin": isBool, "stdout": isBool, "stderr": isBool, "detachKeys": isKeys}
	return []endpoint{
		{method: get, path: "_ping"},
		{method: head, path: "_ping"},
		{method: get, path: "version", kind: Version},
		{method: get, path: "info", kind: Info},
		{method: get, path: "images/json", kind: Images, query: map[string]func(string) bool{"all": isBool, "digests": isBool, "shared-size": isFalse, "filters": isText}, judge: (*Set).judgeImages},
		{method: get, path: "images/{i}/json", judge: (*Set).judgeImage},
		{method: post, path: "images/create", query: map[string]func(string) bool{"fromImage": isText, "tag": isText, "platform": isPlatform}, judge: (*Set).judgePull},
		{method: get, path: "containers/json", query: map[string]func(string) bool{"all": isBool, "limit": isNumber, "size": isBool, "filters": isText}, judge: (*Set).judgeList},
		{method: post, path: "containers/create", kind: Create, body: true, query: map[string]func(string) bool{"name": isName, "platform": isPlatform}, judge: (*Set).judgeCreate},
		{method: get, path: "containers/{c}/json", query: map[string]func(string) bool{"size": isBool}},
		{method: get, path: "containers/{c}/logs", query: map[string]func(string) bool{
			"follow": isBool, "stdout": isBool, "stderr": isBool, "since": isTime, "until": isTime, "timestamps": isBool, "tail": isTail, "details": isFalse,
		}},
		{method: get, path: "containers/{c}/stats", query: map[string]func(string) bool{"stream": isBool, "one-shot": isBool}},
		{method: post, path: "containers/{c}/start", query: map[string]func(string) bool{"detachKeys": isKeys}},
		{method: post, path: "containers/{c}/stop", query: map[string]func(string) bool{"t": isNumber, "signal": isWordOf}},
		{method: post, path: "containers/{c}/restart", query: map[string]func(string) bool{"t": isNumber, "signal": isWordOf}},
		{method: post, path: "containers/{c}/kill", query: map[string]func(string) bool{"signal": isWordOf}},
		{method: post, path: "containers/{c}/pause"},
		{method: post, path: "containers/{c}/unpause"},
		{method: post, path: "containers/{c}/wait", query: map[string]func(string) bool{"condition": isWordOf}},
		{method: post, path: "containers/{c}/resize", query: map[string]func(string) bool{"h": isNumber, "w": isNumber}},
		{method: post, path: "containers/{c}/attach", hijack: true, query: streams},
		{method: "DELETE", path: "containers/{c}", query: map[string]func(string) bool{"v": isBool, "force": isBool, "link": isFalse}},
		{method: post, path: "containers/{c}/exec", body: true, judge: (*Set).judgeExec},
		{method: post, path: "exec/{x}/start", hijack: true, body: true, judge: (*Set).judgeExecStart},
		{method: get, path: "exec/{x}/json", judge: (*Set).judgeExecName},
		{method: post, path: "exec/{x}/resize", query: map[string]func(string) bool{"h": isNumber, "w": isNumber}, judge: (*Set).judgeExecName},
	}
})

// Own gives the filters of a list that has the run's own containers alone.
func (s *Set) Own() string { return OwnFilter(s.run) }

// OwnFilter does so for any run.
func OwnFilter(run string) string {
	return string(strictjson.ObjectOf(strictjson.Member{Name: "label", Value: strictjson.ListOf(strictjson.TextOf(Label + "=" + run))}).Append(nil))
}

func (s *Set) mark() string { return Label + "=" + s.run }

// judgeList adds the run's label to what a list is cut down by.
func (s *Set) judgeList(c *Call, _ Request) error {
	filters, err := readFilters(c.Query.Get("filters"), "label", "id", "name", "status")
	if err != nil {
		return err
	}
	labels := append(filters["label"], strictjson.TextOf(s.mark()))
	members := []strictjson.Member{{Name: "label", Value: strictjson.ListOf(labels...)}}
	for _, name := range []string{"id", "name", "status"} {
		if len(filters[name]) > 0 {
			members = append(members, strictjson.Member{Name: name, Value: strictjson.ListOf(filters[name]...)})
		}
	}
	c.Query.Set("filters", string(strictjson.ObjectOf(members...).Append(nil)))
	return nil
}

// judgeImages lets a list of images be cut down by name alone.
func (s *Set) judgeImages(c *Call, _ Request) error {
	filters, err := readFilters(c.Query.Get("filters"), "reference")
	if err != nil {
		return err
	}
	if c.Query.Del("filters"); len(filters["reference"]) > 0 {
		v := strictjson.ObjectOf(strictjson.Member{Name: "reference", Value: strictjson.ListOf(filters["reference"]...)})
		c.Query.Set("filters", string(v.Append(nil)))
	}
	return nil
}

// readFilters reads {"name": ["value"]} and the older {"name": {"value": true}}.
func readFilters(text string, names ...string) (map[string][]strictjson.Value, error) {
	out := map[string][]strictjson.Value{}
	if text == "" {
		return out, nil
	}
	v, err := strictjson.Parse([]byte(text))
	if err != nil || v.Kind() != strictjson.Object {
		return nil, malformed("malformed filters")
	}
	for _, m := range v.Members() {
		if indexOf(names, m.Name) < 0 {
			return nil, deny("the filter %q is not allowed there", clip(m.Name))
		}
		for _, item := range m.Value.Items() {
			if item.Kind() != strictjson.String {
				return nil, malformed("malformed filters")
			}
			out[m.Name] = append(out[m.Name], item)
		}
		for _, item := range m.Value.Members() {
			if item.Value.Text() != "true" {
				return nil, malformed("malformed filters")
			}
			out[m.Name] = append(out[m.Name], strictjson.TextOf(item.Name))
		}
	}
	return out, nil
}

func (s *Set) judgeImage(c *Call, _ Request) error {
	text := strings.TrimSuffix(strings.TrimPrefix(c.Path, c.Version+"/images/"), "/json")
	name, err := s.image(text)
	c.Path = c.Version + "/images/" + name + "/json"
	return err
}

// judgePull lets the engine fetch an image that the policy lists, with nobody's
// credentials.
func (s *Set) judgePull(c *Call, _ Request) error {
	text, tag := c.Query.Get("fromImage"), c.Query.Get("tag")
	switch {
	case !s.policy.Pull:
		return deny("images are not fetched: network.docker.pull is not set")
	case strings.HasPrefix(tag, "sha256:"):
		text += "@" + tag
	case tag != "":
		text += ":" + tag
	}
	name, err := s.image(text)
	if err != nil {
		return err
	}
	c.Query.Del("tag")
	c.Query.Set("fromImage", name)
	return nil
}

func isText(s string) bool { return len(s) <= 4096 }
func isBool(s string) bool {
	return s == "1" || s == "0" || isTrueText(s) || strings.EqualFold(s, "false")
}
func isFalse(s string) bool { return s == "0" || strings.EqualFold(s, "false") }

func isTrueText(s string) bool { return strings.EqualFold(s, "true") }

func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && len(s) <= 9 && strings.Trim(s, "0123456789") == ""
}

func isTail(s string) bool { return s == "all" || isNumber(s) }

// isTime is a time as logs take it.
func isTime(s string) bool { return len(s) <= 64 && strings.Trim(s, "0123456789.:TZ+-") == "" }

// isWordOf is the name of a signal or a condition.
func isWordOf(s string) bool {
	for i := range len(s) {
		if !isWord(s[i]) {
			return false
		}
	}
	return len(s) <= 64
}

// isKeys is a sequence of keys that detaches.
func isKeys(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) <= 64
}

func isPlatform(s string) bool {
	return len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789/._-") == ""
}

// isName is a container's name. One that could be taken for an identifier would
// lead whoever types that to another container than meant.
func isName(s string) bool {
	digits := len(s) > 3 && strings.Trim(s, "0123456789abcdef") == ""
	return isWordOf(s) && len(s) > 1 && s[0] != '.' && s[0] != '-' && s[0] != '_' && !digits
}
