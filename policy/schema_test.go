package policy

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The schema and the decoder judge a document alike, wherever a schema can.
func TestSchemaAgrees(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	sch, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		text string
		ok   bool
	}{
		{`version: 1`, true},
		{`name: x`, false},
		{`{version: 2}`, false},
		{`{version: "1"}`, false},
		{`{version: 1, name: acme-1.x}`, true},
		{`{version: 1, name: "a b"}`, false},
		{`{version: 1, nmae: x}`, false},
		{`{version: 1, extends: []}`, true},
		{`{version: 1, extends: [builtin:strict, ./a.yaml]}`, true},
		{`{version: 1, extends: [strict]}`, false},
		{`{version: 1, extends: builtin:strict}`, false},
		{`{version: 1, network: null}`, false},
		{`{version: 1, network: {}}`, false},
		{`{version: 1, network: {upstream: {}}}`, false},
		{`{version: 1, network: {hosts: {}}}`, true},
		{`{version: 1, network: []}`, false},
		{`{version: 1, workspace: {path: ., access: write, exec: true}}`, true},
		{`{version: 1, workspace: {access: all}}`, false},
		{`{version: 1, workspace: {exec: "true"}}`, false},
		{`{version: 1, filesystem: {read: [/usr], home: private, home_size: 1G, inodes: 10}}`, true},
		{`{version: 1, filesystem: {home_size: 0}}`, false},
		{`{version: 1, filesystem: {home_size: 1GB}}`, false},
		{`{version: 1, filesystem: {read: [1]}}`, false},
		{`{version: 1, filesystem: {read: [""]}}`, false},
		{`{version: 1, env: {allow: ["LC_*"], set: {A: b}}}`, true},
		{`{version: 1, env: {set: {A: 1}}}`, false},
		{`{version: 1, env: {set: {1A: x}}}`, false},
		{`{version: 1, env: {allow: ["*"]}}`, false},
		{`{version: 1, process: {umask: "0077", stop_grace: 10s, uid: self, hostname: box}}`, true},
		{`{version: 1, process: {umask: "77"}}`, false},
		{`{version: 1, process: {stop_grace: 10}}`, false},
		{`{version: 1, process: {hostname: A.B}}`, false},
		{`{version: 1, limits: {memory: 4G, pids: 100, cpu: 1.5, time: 1h, file_size: 4096}}`, true},
		{`{version: 1, limits: {pids: -1}}`, false},
		{`{version: 1, limits: {pids: 1.5}}`, false},
		{`{version: 1, limits: {cpu: "2"}}`, false},
		{`{version: 1, syscalls: {allow: ["@mount", ptrace], deny: []}}`, true},
		{`{version: 1, syscalls: {allow: ["A B"]}}`, false},
		{`{version: 1, require: {may_degrade: [memory], landlock_abi: 3}}`, true},
		{`{version: 1, require: {may_degrade: [all]}}`, false},
		{`{version: 1, require: {landlock_abi: 99}}`, false},
		{`{version: 1, network: {rules: [{name: a, host: a.org}]}}`, true},
		{`{version: 1, network: {rules: [{name: a, hosts: [a.org, "*.b.org"], ports: [443]}]}}`, true},
		{`{version: 1, network: {rules: [{name: a, any: true, access: full}]}}`, true},
		{`{version: 1, network: {rules: [{host: a.org}]}}`, false},
		{`{version: 1, network: {rules: [{name: a}]}}`, false},
		{`{version: 1, network: {rules: [{name: a, host: a.org, any: true}]}}`, false},
		{`{version: 1, network: {rules: [{name: a, host: A.org}]}}`, false},
		{`{version: 1, network: {rules: [{name: a, hosts: []}]}}`, false},
		{`{version: 1, network: {rules: [{name: a, host: a.org, ports: [70000]}]}}`, false},
		{`{version: 1, network: {rules: [{name: a, host: a.org, ports: []}]}}`, false},
		{`{version: 1, network: {rules: [{name: a, host: a.org, protocol: tcp}]}}`, false},
		{`{version: 1, network: {rules: [{name: a, host: a.org, protocol: tcp, ports: [22]}]}}`, true},
		{`{version: 1, network: {rules: [{name: a, host: a.org, protocol: tcp, ports: [22], access: full}]}}`, false},
		{`{version: 1, network: {rules: [{name: a, host: a.org, allow: [{methods: [GET], paths: ["/v1/**"], query: {q: "*"}}]}]}}`, true},
		{`{version: 1, network: {rules: [{name: a, host: a.org, allow: []}]}}`, true},
		{`{version: 1, network: {rules: [{name: a, host: a.org, allow: [{}]}]}}`, false},
		{`{version: 1, network: {rules: [{name: a, host: a.org, allow: [{methods: [get]}]}]}}`, false},
		{`{version: 1, network: {rules: [{name: a, host: a.org, allow: [{paths: [v1]}]}]}}`, false},
		{`{version: 1, network: {deny: [{host: a.org, reason: x}], remove: [b]}}`, true},
		{`{version: 1, network: {deny: [{reason: x}]}}`, false},
		{`{version: 1, network: {private: [{cidr: 10.0.0.0/8, reason: x}]}}`, true},
		{`{version: 1, network: {private: [{cidr: 10.0.0.0/8}]}}`, false},
		{`{version: 1, network: {publish: ["127.0.0.1:8080:80"], hosts: {a.org: [10.0.0.1]}}}`, true},
		{`{version: 1, network: {publish: ["80"]}}`, false},
		{`{version: 1, audit: {file: /var/log/a.jsonl, required: false}}`, true},
		{`{version: 1, assert: [{deny: {read: /etc/shadow}}, {allow: {url: "GET https://a.org/"}}]}`, true},
		{`{version: 1, assert: [{}]}`, false},
		{`{version: 1, assert: [{deny: {read: /a, write: /b}}]}`, false},
		{`{version: 1, assert: [{deny: {url: "https://a.org/"}}]}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			l := decodeFile("p.yaml", "p.yaml", []byte(tt.text+"\n"))
			root, _ := parse("p.yaml", []byte(tt.text+"\n"))
			if got := len(l.problems) == 0; got != tt.ok {
				t.Errorf("decoder: got %v (%v), want %v", got, l.problems, tt.ok)
			}
			if err := sch.Validate(plain(root)); (err == nil) != tt.ok {
				t.Errorf("schema: got %v, want %v", err, tt.ok)
			}
		})
	}
}

// plain turns a node into what a JSON decoder would give.
func plain(n *node) any {
	if n == nil {
		return nil
	}
	switch n.kind {
	case listNode:
		all := []any{}
		for _, k := range n.kids {
			all = append(all, plain(k))
		}
		return all
	case mapNode:
		all := map[string]any{}
		for i := 0; i+1 < len(n.kids); i += 2 {
			all[n.kids[i].value] = plain(n.kids[i+1])
		}
		return all
	}
	switch {
	case n.plain && (n.tag == "int" || n.tag == "float"):
		return json.Number(n.value)
	case n.plain && n.tag == "bool":
		b, _ := strconv.ParseBool(n.value)
		return b
	case n.plain && n.tag == "null":
		return nil
	}
	return n.value
}

// Each key says what a project's file may do to it, and each form, bound and
// pattern in a tag is one that exists.
func TestTagsAreComplete(t *testing.T) {
	known := []string{"subset", "superset", "lower", "higher", "limit", "fixed", "label", "absent"}
	var walk func(reflect.Type, string, bool)
	walk = func(typ reflect.Type, path string, section bool) {
		for _, f := range fieldsOf(typ) {
			p := join(path, f.key)
			for _, tag := range []string{"is", "key"} {
				if name := f.tag.Get(tag); name != "" {
					if _, ok := forms(name); !ok {
						t.Errorf("%s: got form %q, want one that exists", p, name)
					}
				}
			}
			for _, tag := range []string{"min", "max"} {
				if v := f.tag.Get(tag); v != "" && strconv.FormatInt(atoi(v), 10) != v {
					t.Errorf("%s: got bound %q, want a number", p, v)
				}
			}
			if rule := f.tag.Get("tighten"); section && f.typ.Kind() == reflect.Struct && f.typ != reflect.TypeFor[Path]() {
				walk(f.typ, p, true)
			} else if section && !slices.Contains(known, rule) {
				t.Errorf("%s: got direction %q, want one of %s", p, rule, strings.Join(known, ", "))
			} else if e := elem(f.typ); e.Kind() == reflect.Struct && e != typ && e != reflect.TypeFor[Path]() && e != reflect.TypeFor[Name]() {
				walk(e, p, false)
			}
		}
	}
	walk(reflect.TypeFor[Policy](), "", true)
}

func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}
