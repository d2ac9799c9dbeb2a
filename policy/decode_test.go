package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// problemText is one mistake with its hint.
func problemText(err error) string {
	var ps Problems
	if !errors.As(err, &ps) {
		return fmt.Sprint(err)
	}
	var lines []string
	for _, p := range ps {
		lines = append(lines, p.Error()+" | "+p.Hint)
	}
	return strings.Join(lines, "\n")
}

// Each document has mistakes; want lists what the message must hold, a line
// each, in this order.
func TestDecodeRefuses(t *testing.T) {
	tests := []struct {
		name string
		text string
		want []string
	}{
		{"F01 unclosed quote", "version: 1\nname: \"x\n", []string{"p.yaml:2:7: while scanning a quoted scalar"}},
		{"F01 unclosed bracket", "version: 1\nextends: [a, b\n", []string{"p.yaml:2:10: "}},
		{"F01 bad indentation", "version: 1\nfilesystem:\n  read: []\n write: []\n", []string{"p.yaml:4:2: "}},
		{"F03 empty", "", []string{"p.yaml:1:1: the policy is empty"}},
		{"F03 comment only", "# nothing\n", []string{"p.yaml:1:1: the policy is empty"}},
		{"F03 document start only", "---\n", []string{"p.yaml:1:1: the policy is empty"}},
		{"F03 null", "null\n", []string{"p.yaml:1:1: the policy is empty"}},
		{"F03 list", "- version: 1\n", []string{"p.yaml:1:1: want a map, got a list"}},
		{"F04 null section", "version: 1\nnetwork:\n", []string{"p.yaml:2:9: network: has no value | remove the key to inherit"}},
		{"F04 null list", "version: 1\nnetwork:\n  rules: ~\n", []string{"p.yaml:3:10: network.rules: has no value"}},
		{"F04 null item", "version: 1\nfilesystem: {read: [/usr, ]}\nnetwork:\n  deny:\n    -\n", []string{"p.yaml:5:6: network.deny[0]: has no value"}},
		{"F04 tilde is null", "version: 1\nfilesystem: {read: [~]}\n", []string{`p.yaml:2:21: filesystem.read[0]: has no value | quote the home directory: "~"`}},
		{"F06 unknown section", "version: 1\nnetwrok: {}\n", []string{`p.yaml:2:1: netwrok: unknown key | did you mean "network"?`}},
		{"F06 unknown key", "version: 1\nfilesystem:\n  denyWrtie: []\n", []string{`p.yaml:3:3: filesystem.denyWrtie: unknown key | known here: `}},
		{"F06 case", "version: 1\nNetwork: {}\n", []string{`did you mean "network"?`}},
		{"F06 deep", "version: 1\nnetwork:\n  rules:\n    - {name: a, host: a.org, allow: [{method: [GET]}]}\n", []string{`p.yaml:4:39: network.rules[0].allow[0].method: unknown key | did you mean "methods"?`}},
		{"F06 other section", "version: 1\nhide: []\n", []string{`"hide" belongs under filesystem`}},
		{"F08 enum", "version: 1\nworkspace: {access: Write}\n", []string{`p.yaml:2:21: workspace.access: unknown value "Write" | did you mean "write"? It is one of none, read, cow, write`}},
		{"F08 layer", "version: 1\nrequire: {may_degrade: [everything]}\n", []string{`require.may_degrade[0]: unknown value "everything" | one of namespaces, `}},
		{"F09 section twice", "version: 1\nenv: {set: {}}\nnetwork: {rules: []}\nenv: {set: {}}\n", []string{"p.yaml:4:1: env: duplicate key, first on line 2"}},
		{"F04 empty sections", "version: 1\nnetwork: {}\nlimits:\n  {}\ninference: {budget: {}}\n", []string{
			"p.yaml:2:10: network: is empty", "p.yaml:4:3: limits: is empty", "p.yaml:5:21: inference.budget: is empty",
		}},
		{"F09 quoted twice", "version: 1\n\"env\": {set: {}}\nenv: {set: {}}\n", []string{"p.yaml:3:1: env: duplicate key, first on line 2"}},
		{"F09 nested twice", "version: 1\nlimits: {pids: 1,\n  pids: 2}\n", []string{"p.yaml:3:3: limits.pids: duplicate key, first on line 2"}},
		{"F10 second document", "version: 1\n---\nversion: 1\n", []string{"a second document is not allowed"}},
		{"F10 broken second document", "version: 1\n---\n[\n", []string{"p.yaml:4:1: "}},
		{"F11 anchor and alias", "version: 1\nname: &n x\ndescription: *n\n", []string{`p.yaml:2:7: anchor "&n" is not allowed`, `p.yaml:3:14: alias "*n" is not allowed`}},
		{"F11 merge key", "version: 1\n<<: {name: x}\n", []string{"p.yaml:2:1: merge keys are not allowed"}},
		{"F11 nesting", "version: 1\nname: " + strings.Repeat("[", 20000), []string{"nest at most 32 deep"}},
		{"F11 size", "version: 1\ndescription: " + strings.Repeat("x", 1<<20), []string{"more than the limit of 1048576"}},
		{"F13 octal", "version: 1\nnetwork: {deny: [{host: a.org, ports: [0443]}]}\n", []string{`network.deny[0].ports[0]: want a whole number, got "0443" | numbers are decimal`}},
		{"F13 hex", "version: 1\nlimits: {pids: 0x1f}\n", []string{`limits.pids: want a whole number`}},
		{"F13 underscore", "version: 1\nlimits: {pids: 1_000}\n", []string{`limits.pids: want a whole number`}},
		{"F13 exponent", "version: 1\nlimits: {pids: 1e3}\n", []string{`limits.pids: want a whole number`}},
		{"F13 float version", "version: 1.10\n", []string{`p.yaml:1:10: version: want a whole number, got "1.10"`}},
		{"F13 yes for bool", "version: 1\naudit: {required: yes}\n", []string{`audit.required: want true or false, got "yes" | write true or false`}},
		{"F13 capital bool", "version: 1\naudit: {required: True}\n", []string{`audit.required: want true or false, got "True"`}},
		{"F13 quoted bool", "version: 1\naudit: {required: \"true\"}\n", []string{`audit.required: want true or false`}},
		{"F13 no for name", "version: 1\nname: no\n", []string{`p.yaml:2:7: name: want text, got a word that some readers take for true or false | quote it: "no"`}},
		{"F13 float for host", "version: 1\nnetwork: {deny: [{host: 1.1}]}\n", []string{`network.deny[0].host: want text, got a number | quote it: "1.1"`}},
		{"F13 number for env", "version: 1\nenv: {set: {PORT: 8080}}\n", []string{`env.set.PORT: want text, got a number | quote it: "8080"`}},
		{"F14 star in a list", "version: 1\nenv:\n  allow: [*.github.com]\n", []string{`p.yaml:3:11: unknown anchor '.github.com' referenced | quote a value that starts with "*"`}},
		{"F14 star as a value", "version: 1\nname: *\n", []string{`quote a value that starts with "*"`}},
		{"F15 string for list", "version: 1\nfilesystem: {read: /usr}\n", []string{`p.yaml:2:20: filesystem.read: want a list, got a single value | write [/usr]`}},
		{"F15 list for map", "version: 1\nnetwork: []\n", []string{`network: want a map, got a list`}},
		{"F15 map for string", "version: 1\nname: {a: b}\n", []string{`name: want a single value, got a map`}},
		{"F15 string for number", "version: 1\nlimits: {pids: \"64\"}\n", []string{`limits.pids: want a whole number, got "64" | write 64 without quotes`}},
		{"F15 port range", "version: 1\nnetwork: {deny: [{host: a.org, ports: [70000, 0, -1]}]}\n", []string{"70000 is above the greatest value, 65535", "0 is below the least value, 1", "-1 is negative"}},
		{"version missing", "name: x\n", []string{`p.yaml:1:1: version: missing`}},
		{"version 2", "version: 2\n", []string{`p.yaml:1:10: version: this program reads version 1, not 2`}},
		{"byte order mark", "\ufeffversion: 1\n", []string{"p.yaml:1:1: starts with a byte order mark"}},
		{"tab", "version: 1\nenv:\n\tset: {}\n", []string{"p.yaml:3:1: tab character | use spaces"}},
		{"NUL", "version: 1\nname: a\x00b\n", []string{"p.yaml:2:8: NUL character"}},
		{"NUL escaped", "version: 1\nenv: {set: {A: \"a\\0b\"}}\n", []string{"env.set.A: contains the control character U+0000"}},
		{"invalid UTF-8", "version: 1\nname: a\xffb\n", []string{"p.yaml:2:8: invalid UTF-8"}},
		{"text that runs backwards", "version: 1\ndescription: \u202ex\n", []string{"invisible character U+202E"}},
		{"directive", "%YAML 1.1\n---\nversion: 1\n", []string{"p.yaml:1:1: directives are not allowed"}},
		{"local tag", "version: 1\nname: !x y\n", []string{`p.yaml:2:7: tag "!x" is not allowed`}},
		{"core tag", "version: 1\nname: !!str 3\n", []string{`tag "!!str" is not allowed`}},
		{"binary tag", "version: 1\nname: !!binary aGk=\n", []string{`tag "!!binary" is not allowed`}},
		{"map as key", "version: 1\n? {a: b}\n: x\n", []string{`a key must be a word`}},
		{"size", "version: 1\nlimits: {memory: 4GB, file_size: 1.5G}\n", []string{`limits.memory: want a size, got "4GB"`, `limits.file_size: want a size`}},
		{"size overflow", "version: 1\nlimits: {memory: 99999999999T}\n", []string{`99999999999T is out of range`}},
		{"size zero of a tmpfs is no limit", "version: 1\nfilesystem: {tmp_size: 0}\n", []string{`filesystem.tmp_size: 0 is below the least value`}},
		{"duration", "version: 1\nlimits: {time: 5}\n", []string{`limits.time: want a duration, got "5"`}},
		{"cpu", "version: 1\nlimits: {cpu: .inf}\n", []string{`limits.cpu: want a number`}},
		{"umask", "version: 1\nprocess: {umask: \"77\"}\n", []string{`process.umask: "77" is not a valid umask`}},
		{"env star", "version: 1\nenv: {allow: [\"*\"]}\n", []string{`"*" is not a valid env pattern`}},
		{"extends a bare name", "version: 1\nextends: [hermes-strict]\n", []string{`"hermes-strict" is neither a built-in nor a path | write builtin:hermes-strict`}},
		{"all of them in file order", "version: 1\nnmae: x\nlimits: {pids: -1}\nworkspace: {access: all}\n", []string{"p.yaml:2:1: nmae", "p.yaml:3:16: limits.pids", "p.yaml:4:21: workspace.access"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newWorld(t).load(tt.text)
			if err == nil {
				t.Fatalf("got no error, want %q", tt.want)
			}
			got := problemText(err)
			rest := got
			for _, want := range tt.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("got:\n%s\nwant it to hold %q", got, want)
				}
				rest = after
			}
			if n := strings.Count(got, "\n") + 1; n != len(tt.want) {
				t.Errorf("got %d problems, want %d:\n%s", n, len(tt.want), got)
			}
		})
	}
}

func TestDecodeRefusesNetwork(t *testing.T) {
	tests := []struct{ name, rule, want string }{
		{"host missing", `{name: a}`, "has no host"},
		{"name missing", `{host: a.org}`, "rules[0].name: missing"},
		{"star", `{name: a, host: "*"}`, `spell it "any: true"`},
		{"star inside", `{name: a, host: "a*.org"}`, "a wildcard must be the whole first label"},
		{"star in the middle", `{name: a, host: "a.*.org"}`, "a wildcard must be the whole first label"},
		{"star before address", `{name: a, host: "*.10.0.0.1"}`, "an address has no wildcard"},
		{"capitals", `{name: a, host: "*.Example.ORG"}`, "write *.example.org"},
		{"Kelvin sign", "{name: a, host: \"\u212aelvin.org\"}", "write kelvin.org"},
		{"trailing dot", `{name: a, host: a.org.}`, "write a.org"},
		{"URL", `{name: a, host: "https://a.org/x"}`, "write a.org"},
		{"port", `{name: a, host: "a.org:443"}`, "write a.org"},
		{"international", `{name: a, host: bücher.example}`, "write xn--bcher-kva.example"},
		{"short address", `{name: a, host: "127.1"}`, "another notation"},
		{"short quoted address", `{name: a, host: "127.1.x.0x7f"}`, "another notation"},
		{"number", `{name: a, host: "2130706433"}`, "another notation"},
		{"leading zeros", `{name: a, host: 010.0.0.1}`, "another notation"},
		{"v4 in v6", `{name: a, host: "::ffff:10.0.0.1"}`, "write 10.0.0.1"},
		{"long v6", `{name: a, host: "0:0:0:0:0:0:0:1"}`, "write ::1"},
		{"zone", `{name: a, host: "fe80::1%eth0"}`, "zone"},
		{"empty label", `{name: a, host: a..org}`, "empty label"},
		{"tcp without ports", `{name: a, host: a.org, protocol: tcp}`, "ports: missing"},
		{"tcp with methods", `{name: a, host: a.org, protocol: tcp, ports: [22], access: full}`, "a tcp rule cannot have"},
		{"pass with methods", `{name: a, host: a.org, tls: pass, allow: [{methods: [GET]}]}`, "pass hides methods"},
		{"pass with access", `{name: a, host: a.org, tls: pass, access: read-only}`, "pass hides methods"},
		{"host and any", `{name: a, host: a.org, any: true}`, "exclude each other"},
		{"any false", `{name: a, any: false}`, "false has no meaning"},
		{"no ports", `{name: a, host: a.org, ports: []}`, "matches nothing"},
		{"no hosts", `{name: a, hosts: []}`, "matches nothing"},
		{"small method", `{name: a, host: a.org, allow: [{methods: [get]}]}`, "is not a valid method"},
		{"empty clause", `{name: a, host: a.org, deny: [{}]}`, "is empty"},
		{"empty methods", `{name: a, host: a.org, deny: [{methods: []}]}`, "matches nothing"},
		{"relative path", `{name: a, host: a.org, allow: [{paths: [v1]}]}`, `starts with "/"`},
		{"dotted path", `{name: a, host: a.org, allow: [{paths: [/a/../b]}]}`, "not in normal form"},
		{"query in path", `{name: a, host: a.org, allow: [{paths: ["/a?b=c"]}]}`, `under "query"`},
		{"bad pattern", `{name: a, host: a.org, allow: [{paths: ["/a/**b"]}]}`, "must stand alone"},
		{"class", `{name: a, host: a.org, allow: [{paths: ["/[ab]"]}]}`, "no meaning in a pattern"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newWorld(t).load("version: 1\nnetwork:\n  rules:\n    - " + tt.rule + "\n")
			if got := problemText(err); err == nil || !strings.Contains(got, tt.want) {
				t.Errorf("got %v, want %q", got, tt.want)
			} else if strings.Contains(got, "\n") {
				t.Errorf("got several problems, want one:\n%s", got)
			}
		})
	}
}

func TestDecodeRefusesOther(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"CIDR host bits", `network: {private: [{cidr: 10.1.2.3/24, reason: x}]}`, "write 10.1.2.0/24"},
		{"CIDR of everything", `network: {private: [{cidr: 0.0.0.0/0, reason: x}]}`, "opens every address"},
		{"metadata address", `network: {private: [{cidr: 169.254.169.254, reason: x}]}`, "cannot be opened"},
		{"private without reason", `network: {private: [{cidr: 10.1.2.0/24}]}`, "reason: missing"},
		{"publish port", `network: {publish: ["0:80"]}`, `"0" is not a port`},
		{"publish address", `network: {publish: ["::1:8080:80"]}`, "in brackets"},
		{"pinned host", `network: {hosts: {a.org: [10.0.0.01]}}`, "is not an IP address"},
		{"pinned host without address", `network: {hosts: {a.org: []}}`, "has no address"},
		{"two questions", `assert: [{allow: {read: /a, write: /b}}]`, "asks 2 questions"},
		{"no question", `assert: [{allow: {}}]`, "asks 0 questions"},
		{"allow and deny", `assert: [{allow: {read: /a}, deny: {read: /b}}]`, "has both"},
		{"neither", `assert: [{}]`, "has neither"},
		{"assertion URL", `assert: [{deny: {url: "https://a.org"}}]`, "a method and an absolute URL"},
		{"assertion host", `assert: [{deny: {connect: "A.org:80"}}]`, "write a.org"},
		{"relative path", `filesystem: {read: [./x]}`, "is a relative path"},
		{"climbing path", `filesystem: {read: [/usr/../etc]}`, "climbs"},
		{"other home", `filesystem: {read: [~root/x]}`, "another user's home"},
		{"unknown variable", `filesystem: {read: ["${HMOE}/x"]}`, "did you mean ${HOME}?"},
		{"variable inside", `filesystem: {read: ["/x/${HOME}"]}`, "not at its start"},
		{"bare variable", `filesystem: {read: ["$HOME/x"]}`, "without braces"},
		{"empty path", `filesystem: {read: [""]}`, "the path is empty"},
		{"class in path", `filesystem: {hide: ["/x/[ab]"]}`, "no meaning in a pattern"},
		{"star in audit file", `audit: {file: /var/log/*}`, "where one path is meant"},
		{"unknown variable in env", `env: {set: {A: "x${NOPE}y"}}`, "unknown variable"},
		{"write to root", `filesystem: {write: [/]}`, `would make "/" writable`},
		{"write to home", `filesystem: {write: ["~"]}`, "writable"},
		{"write above home", `filesystem: {write: ["${HOME}/*"]}`, "writable"},
		{"layer over home", `filesystem: {cow: ["~"]}`, "filesystem.cow: \"~\" would make"},
		{"layer over all", `filesystem: {cow: [/]}`, `would make "/" writable`},
		{"home as workspace", `workspace: {path: "~"}`, "holds all of"},
		{"audit inside", `audit: {file: "${WORKSPACE}/audit.jsonl"}`, "visible inside"},
		{"remove unknown", `network: {remove: [dosc]}`, `did you mean "docs"?`},
		{"remove locked", `network: {remove: [pinned]}`, "is locked (builtin:strict:"},
		{"clear locked", `network: {rules: []}`, "is locked"},
		{"clear denials", `network: {deny: []}`, "cannot drop inherited denials"},
		{"name of an inherited rule", `network: {rules: [{name: docs, host: x.org}]}`, `the name "docs" is taken by builtin:strict:`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newWorld(t).load("version: 1\n" + tt.text + "\n")
			if got := problemText(err); err == nil || !strings.Contains(got, tt.want) {
				t.Errorf("got %v, want %q", got, tt.want)
			} else if strings.Contains(got, "\n") {
				t.Errorf("got several problems, want one:\n%s", got)
			}
		})
	}
}
