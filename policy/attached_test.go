package policy

import (
	"errors"
	"strings"
	"testing"
)

// fullText uses every new section at once; each case below breaks one thing.
const fullText = `version: 1
filesystem: {read: [/usr/lib]}
network:
  rules:
    - {name: api, host: api.example.org, access: read-only, credential: token}
    - {name: clone, host: git.example.org, protocol: git, allow: [{op: fetch, repos: ["acme/*"]}]}
    - {name: tools, host: mcp.example.org, protocol: mcp, paths: [/mcp], allow: [{tools: ["search_*"]}]}
    - {name: bucket, host: s3.example.org, access: full, credential: aws}
  upstream:
    proxy: env
    certificates: [{hosts: [mtls.example.org], cert: ~/keys/c.pem, key: ~/keys/k.pem}]
    connections_per_host: 64
  budget: {bytes_out: 1G, hosts: 20}
credentials:
  token: {source: {env: REAL_TOKEN}, expose: {env: TOKEN}, attach: bearer, hosts: ["*.example.org"]}
  model: {source: {file: ~/keys/model}, expose: {env: MODEL_KEY}, attach: header, header: X-Api-Key, hosts: [models.example.org]}
  aws: {source: {command: [/usr/bin/pass, aws]}, attach: sigv4, aws: {region: eu-central-1}, hosts: [s3.example.org]}
inference:
  routes:
    - {name: models, provider: anthropic, host: models.example.org, models: ["opus-*"], credential: model, rename: {big: opus-9}}
  budget: {money: 5}
  prices: {"opus-*": {input: 1, output: 2}}
  hard_stop: {exact_failure: 3, no_progress: 0}
metrics: {socket: ~/run/metrics.sock}
`

func TestFullExample(t *testing.T) {
	if _, err := newWorld(t).load(fullText); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

func TestNewSectionsAreChecked(t *testing.T) {
	tests := []struct{ name, old, new, path, what string }{
		{"two sources", "{env: REAL_TOKEN}", "{env: REAL_TOKEN, systemd: token}", "credentials.token.source", "names 2 sources"},
		{"no source", "{env: REAL_TOKEN}", "{}", "credentials.token.source", "names no source"},
		{"relative program", "/usr/bin/pass", "bin/pass", "credentials.aws.source.command[0]", "depends on the directory"},
		{"header is missing", ", header: X-Api-Key", "", "credentials.model.header", "missing"},
		{"header of the connection", "X-Api-Key", "Content-Length", "credentials.model.header", "connection's own"},
		{"field of another way", "attach: bearer", "attach: bearer, query: key", "credentials.token.query", "no meaning with attach: bearer"},
		{"basic without user", "attach: bearer", "attach: basic", "credentials.token.user", "missing"},
		{"aws with bearer", "attach: bearer", "attach: bearer, aws: {service: s3}", "credentials.token.aws", "no meaning"},
		{"oauth with sigv4", "attach: sigv4", "attach: sigv4, oauth: {token_url: https://id.example.org/token}", "credentials.aws.oauth", "cannot be attached"},
		{"oauth secret without source", "attach: bearer", "attach: bearer, oauth: {token_url: https://id.example.org/token, client_secret: {}}", "credentials.token.oauth.client_secret", "names no source"},
		{"token endpoint without TLS", "attach: bearer", "attach: bearer, oauth: {token_url: http://id.example.org/token}", "credentials.token.oauth.token_url", "https"},
		{"short placeholder", "{env: TOKEN}", "{env: TOKEN, placeholder: abc}", "credentials.token.expose.placeholder", "fewer than 8"},
		{"unused", ", access: read-only, credential: token", ", access: read-only", "credentials.token", "no rule and no route uses it"},
		{"unknown", "credential: token", "credential: tokem", "network.rules", `the credential "tokem", which does not exist`},
		{"host not bound", `hosts: ["*.example.org"]`, "hosts: [other.example.org]", "network.rules", `is for api.example.org, to which the credential "token" is not bound`},
		{"pattern wider than bound", "host: api.example.org,", `host: "**.example.org",`, "network.rules", "is not bound"},
		{"route not bound", "host: models.example.org, models", "host: models.example.net, models", "inference.routes", "is not bound"},
		{"any", "host: api.example.org, access", "any: true, access", "network.rules[0].any", "cannot have a credential"},
		{"pass", "access: read-only, credential: token", "tls: pass, credential: token", "network.rules[0].credential", "tls: pass"},
		{"tcp", "access: read-only, credential: token", "protocol: tcp, ports: [443], credential: token", "network.rules[0].credential", "unread"},
		{"sigv4 on mcp", "paths: [/mcp],", "paths: [/mcp], credential: aws,", "network.rules", "attach: sigv4"},
		{"one variable twice", "{env: MODEL_KEY}", "{env: TOKEN}", "credentials.token", "exposed by the credential"},
		{"part of a pair set too", "attach: sigv4,", "attach: sigv4, expose: {env: AWS},", "credentials.aws", "AWS_SECRET_ACCESS_KEY is set by env.set too"},
		{"variable set too", "metrics:", "env: {set: {TOKEN: x}}\nmetrics:", "credentials.token", "set by env.set too"},
		{"secret let in", "metrics:", "env: {allow: [\"REAL_*\"]}\nmetrics:", "credentials.token", "lets the secret itself in"},
		{"secret file visible", "~/keys/model", "/usr/lib/model", "credentials.model.source.file", "visible inside"},
		{"program writable", "/usr/bin/pass", "${W}/pass", "credentials.aws.source.command", "writable inside"},
		{"script writable", "[/usr/bin/pass, aws]", "[/bin/sh, \"${W}/get\"]", "credentials.aws.source.command", "writable inside"},
		{"client key visible", "key: ~/keys/k.pem", "key: /usr/lib/k.pem", "network.upstream.certificates[0].key", "visible inside"},
		{"client key in the workspace", "key: ~/keys/k.pem", "key: \"${WORKSPACE}/k.pem\"", "network.upstream.certificates[0].key", "visible inside"},
		{"authority writable", "  upstream:", "  ca: [\"${WORKSPACE}/ca.pem\"]\n  upstream:", "network.ca", "writable inside"},
		{"socket visible", "~/run/metrics.sock", "\"${WORKSPACE}/m.sock\"", "metrics.socket", "visible inside"},
		{"socks", "proxy: env", "proxy: socks5://proxy.example.org", "network.upstream.proxy", "not a valid proxy url"},
		{"password in a policy", "proxy: env", "proxy: http://me:secret@proxy.example.org", "network.upstream.proxy", "holds no password"},
		{"access with a protocol", "protocol: git,", "protocol: git, access: full,", "network.rules[1].access", "no meaning in a rule with protocol git"},
		{"paths with git", "protocol: git,", "protocol: git, paths: [/x],", "network.rules[1].paths", "no meaning in a rule with protocol git"},
		{"answer bound with git", "protocol: git,", "protocol: git, max_response: 1M,", "network.rules[1].max_response", "no meaning"},
		{"encoded slash with git", "protocol: git,", "protocol: git, encoded_slash: true,", "network.rules[1].encoded_slash", "no meaning"},
		{"protocol passed", "protocol: git,", "protocol: git, tls: pass,", "network.rules[1].tls", "pass hides what protocol git is judged by"},
		{"refs of a fetch", "{op: fetch,", "{op: fetch, refs: [refs/heads/x],", "network.rules[1].allow[0].refs", "no meaning with op: fetch"},
		{"tools without their call", `{tools: ["search_*"]}`, `{tools: ["search_*"], calls: [tools/list]}`, "network.rules[2].allow[0].calls", "leaves out tools/call"},
		{"methods in mcp", `{tools: ["search_*"]}`, `{methods: [GET]}`, "network.rules[2].allow[0].methods", "no meaning in a rule with protocol mcp"},
		{"route with wildcard", "host: models.example.org, models", `host: "*.example.org", models`, "inference.routes[0].host", "one host"},
		{"plain with credential", "models: [", "plain: true, models: [", "inference.routes[0].credential", "no TLS"},
		{"base with wildcard", "models: [", "base: /v1/*, models: [", "inference.routes[0].base", "not a plain path"},
		{"name of a rule", "{name: models,", "{name: api,", "inference.routes", `the name "api" is taken by the rule`},
		{"renamed to another", "big: opus-9", "big: gpt", "inference.routes[0].rename.big", "not among the models"},
		{"renamed by pattern", "big: opus-9", `"b*": opus-9`, "inference.routes[0].rename.b*", "without wildcards"},
		{"no price", `"opus-*": {`, `"opus-8*": {`, "inference.prices", "has no price"},
		{"every model", `models: ["opus-*"], `, "", "inference.routes", "allows every model"},
		{"once is no circle", "exact_failure: 3", "exact_failure: 1", "inference.hard_stop.exact_failure", "happened only once"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if !strings.Contains(fullText, tt.old) {
				t.Fatalf("%q is not in the example", tt.old)
			}
			text := strings.Replace(fullText, tt.old, strings.ReplaceAll(tt.new, "${W}", w.work), 1) + "env: {set: {AWS_SECRET_ACCESS_KEY: x}}\n"
			if strings.Contains(tt.new, "env: {set") || strings.Contains(tt.new, "env: {allow") {
				text = strings.Replace(fullText, tt.old, tt.new, 1)
			}
			_, err := w.load(text)
			var ps Problems
			if !errors.As(err, &ps) {
				t.Fatalf("got %v, want a problem", err)
			}
			for _, p := range ps {
				if p.Path == tt.path && strings.Contains(p.What, tt.what) && p.Pos.Line > 0 && p.Pos.Col > 0 && p.Hint != "" {
					return
				}
			}
			t.Errorf("got %#v, want %s: %s, with a place and a hint", ps, tt.path, tt.what)
		})
	}
}

// Mistakes of all new sections are told in one run.
func TestNewSectionsAllAtOnce(t *testing.T) {
	text := strings.NewReplacer("attach: bearer", "attach: basic", "exact_failure: 3", "exact_failure: 1", "protocol: git,", "protocol: git, access: full,").Replace(fullText)
	_, err := newWorld(t).load(text)
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 3 {
		t.Errorf("got %v, want three problems", err)
	}
}

// A credential of a base policy needs its use somewhere in the whole policy, not
// in its own file.
func TestCredentialAcrossLayers(t *testing.T) {
	w := newWorld(t)
	w.write("work/base.yaml", "version: 1\ncredentials:\n  token: {source: {env: X}, attach: bearer, hosts: [api.example.org]}\n")
	const use = "version: 1\nextends: [./base.yaml]\nnetwork:\n  rules:\n    - {name: api, host: api.example.org, credential: token}\n"
	if _, err := w.load(use); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if _, err := w.load("version: 1\nextends: [./base.yaml]\n"); err == nil || !strings.Contains(err.Error(), "no rule and no route uses it") {
		t.Errorf("got %v, want an unused credential", err)
	}
}
