package registries

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// user is a home, a workspace and an environment.
type user struct {
	t       *testing.T
	dir     string
	environ map[string]string
}

func newUser(t *testing.T) user {
	t.Helper()
	dir := t.TempDir()
	u := user{t, dir, map[string]string{"GOROOT": filepath.Join(dir, "goroot"), "NPM_CONFIG_GLOBALCONFIG": filepath.Join(dir, "global"), "PIP_CONFIG_FILE": filepath.Join(dir, "none")}}
	u.write("work/x", "")
	return u
}

func (u user) write(name, text string) {
	u.t.Helper()
	path := filepath.Join(u.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "{dir}", u.dir)), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

func (u user) world() World {
	return World{Getenv: func(n string) string { return u.environ[n] }, Home: filepath.Join(u.dir, "home"), Workspace: filepath.Join(u.dir, "work")}
}

const secretToken = "npm_0123456789abcdefghij"

func TestFragment(t *testing.T) {
	for _, c := range []struct {
		name, client string
		files, env   map[string]string
		want         []string // in the fragment
		not          []string
		trouble      string
	}{
		{name: "npm: nothing", client: "npm", trouble: "no registry is configured for npm, and none is guessed"},
		{
			name: "npm", client: "npm",
			files: map[string]string{"home/.npmrc": "; mine\nregistry = https://Packages.example.org/npm/\nfund=true\n", "global": "registry=https://other.example.org/\n"},
			want: []string{
				`host: "packages.example.org"`, `paths: ["/npm/**"]`, "methods: [GET, HEAD]", "encoded_slash: true", "ports: [443]",
				`npm_config_registry: "https://packages.example.org/npm/"`, "/home/.npmrc:2", "/home/.npmrc?",
			},
			not: []string{"other.example.org", "credentials:", "read:"},
		},
		{
			name: "npm: the environment counts first", client: "npm", env: map[string]string{"NPM_CONFIG_REGISTRY": "http://127.0.0.1:4873"},
			files: map[string]string{"home/.npmrc": "registry=https://packages.example.org/\n"},
			want:  []string{`host: "127.0.0.1"`, "ports: [4873]", "# from NPM_CONFIG_REGISTRY"}, not: []string{"packages.example.org"},
		},
		{name: "npm: the global file", client: "npm", files: map[string]string{"global": "registry=https://other.example.org/\n"}, want: []string{"other.example.org"}},
		{
			name: "npm: token", client: "npm",
			files: map[string]string{"home/.npmrc": "registry=https://packages.example.org/npm/\n@acme:registry=https://acme.example.org/\n" +
				"//packages.example.org/npm/:_authToken=" + secretToken + "\n//acme.example.org/:_authToken=${ACME_TOKEN}\n//elsewhere.example.org/:_auth=abc\n"},
			want: []string{
				"{file: \"{dir}/home/.npmrc\", key: \"//packages.example.org/npm/:_authToken\"}", "{env: ACME_TOKEN}", "attach: bearer",
				`hosts: ["acme.example.org"]`, "credential: npm-2",
			},
			not: []string{secretToken, "elsewhere", "  read:"},
		},
		{name: "npm: scopes without secrets", client: "npm", files: map[string]string{"home/.npmrc": "@acme:registry=https://acme.example.org/\n"}, want: []string{"  read:\n    - \"{dir}/home/.npmrc\""}},
		{name: "npm: password", client: "npm", files: map[string]string{"home/.npmrc": "registry=https://p.example.org/\n//p.example.org/:_password=abc\n"}, trouble: "_password cannot be attached"},
		{name: "npm: token without TLS", client: "npm", files: map[string]string{"home/.npmrc": "registry=http://p.example.org/\n//p.example.org/:_authToken=abcdefgh\n"}, trouble: "without https"},
		{name: "npm: in the workspace", client: "npm", env: map[string]string{"NPM_CONFIG_USERCONFIG": "{dir}/work/.npmrc"}, files: map[string]string{"work/.npmrc": "registry=https://p.example.org/\n"}, trouble: "lies in the workspace"},
		{name: "npm: project's own", client: "npm", files: map[string]string{"work/.npmrc": "registry=https://p.example.org/\n"}, trouble: "no registry"},
		{name: "npm: no URL", client: "npm", files: map[string]string{"home/.npmrc": "registry=packages\n"}, trouble: ".npmrc:1: the registry is not an https URL"},
		{name: "npm: pattern in the path", client: "npm", files: map[string]string{"home/.npmrc": "registry=https://p.example.org/**\n"}, trouble: "more than a host and a plain path"},
		{name: "npm: pattern in the host", client: "npm", files: map[string]string{"home/.npmrc": "registry=https://*.example.org/\n"}, trouble: "no usable host"},
		{name: "npm: YAML in the host", client: "npm", files: map[string]string{"home/.npmrc": "registry=https://a\", any: \"/\n"}, trouble: "not an https URL"},

		{name: "pip: nothing", client: "pip", files: map[string]string{"home/.config/pip/pip.conf": "[global]\ntimeout=3\n"}, trouble: "no registry is configured for pip"},
		{
			name: "pip", client: "pip",
			files: map[string]string{"home/.config/pip/pip.conf": "[global]\nindex-url = https://pip.example.org/simple\nextra-index-url =\n    https://more.example.org/simple\n    https://third.example.org/x\n"},
			want: []string{
				`host: "pip.example.org"`, `host: "third.example.org"`, `paths: ["/**"]`, `PIP_INDEX_URL: "https://pip.example.org/simple/"`, `UV_DEFAULT_INDEX`,
				`PIP_EXTRA_INDEX_URL: "https://more.example.org/simple/ https://third.example.org/x/"`,
			},
		},
		{name: "pip: password", client: "pip", env: map[string]string{"PIP_INDEX_URL": "https://me:" + secretToken + "@pip.example.org/simple"}, trouble: "PIP_INDEX_URL: the URL holds a password"},
		{
			name: "uv", client: "pip",
			files: map[string]string{"home/.config/uv/uv.toml": "# mine\nextra-index-url = [\n  \"https://more.example.org/simple\",\n]\n[[index]]\nname = \"a\"\nurl = \"https://uv.example.org/simple\"\ndefault = true\n"},
			want:  []string{`host: "uv.example.org"`, `host: "more.example.org"`},
		},

		{name: "go: nothing", client: "go", trouble: "no registry is configured for go"},
		{
			name: "go: the installed Go's own", client: "go", files: map[string]string{"goroot/go.env": "GOPROXY=https://go.example.org,direct\nGOSUMDB=sum.example.org\n"},
			want: []string{`host: "go.example.org"`, `host: "sum.example.org"`, `GOPROXY: "https://go.example.org"`, `GOSUMDB: "sum.example.org"`}, not: []string{"direct"},
		},
		{
			name: "go: the user's file", client: "go", files: map[string]string{"home/.config/go/env": "GOPROXY=https://a.example.org/x|https://b.example.org,off,https://c.example.org\nGOSUMDB=off\nGOPRIVATE=example.org/p\n", "goroot/go.env": "GOPROXY=https://go.example.org\nGOSUMDB=sum.example.org\n"},
			want: []string{`paths: ["/x/**"]`, `host: "b.example.org"`, `GOSUMDB: "off"`, `GOPRIVATE: "example.org/p"`}, not: []string{"c.example.org", "sum.example.org", "go.example.org"},
		},
		{name: "go: a database by another way", client: "go", env: map[string]string{"GOPROXY": "https://go.example.org", "GOSUMDB": "sum.example.org+abc https://db.example.org/s"}, want: []string{`host: "db.example.org"`}, not: []string{`host: "sum.example.org"`}},
		{name: "go: direct", client: "go", env: map[string]string{"GOPROXY": "direct"}, trouble: "no registry"},
		{name: "go: password", client: "go", env: map[string]string{"GOPROXY": "https://me:" + secretToken + "@go.example.org"}, trouble: "holds a password"},

		{name: "cargo: nothing", client: "cargo", files: map[string]string{"home/.cargo/config.toml": "[build]\njobs = 4\n"}, trouble: "no registry is configured for cargo"},
		{
			name: "cargo", client: "cargo",
			files: map[string]string{"home/.cargo/config.toml": "[source.crates-io]\nreplace-with = \"mirror\"\n[source.\"mirror\"]\nregistry = \"sparse+https://crates.example.org/index/\" # mine\n[registries]\nacme = { index = \"sparse+https://acme.example.org/\" }\n"},
			want:  []string{`host: "crates.example.org"`, `host: "acme.example.org"`, "  read:\n    - \"{dir}/home/.cargo/config.toml\""},
		},
		{name: "cargo: token", client: "cargo", files: map[string]string{"home/.cargo/config.toml": "[registries.acme]\nindex = \"sparse+https://acme.example.org/\"\ntoken = \"" + secretToken + "\"\n"}, trouble: "is a secret"},
		{name: "cargo: git", client: "cargo", files: map[string]string{"home/.cargo/config.toml": "[registries.acme]\nindex = \"https://acme.example.org/index.git\"\n"}, trouble: "git repository"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUser(t)
			for k, v := range c.env {
				u.environ[k] = strings.ReplaceAll(v, "{dir}", u.dir)
			}
			for name, text := range c.files {
				u.write(name, text)
			}
			got, err := Fragment(c.client, u.world())
			if c.trouble != "" {
				trouble, ok := err.(Trouble)
				if !ok || !strings.Contains(trouble.What, c.trouble) || trouble.Hint == "" {
					t.Fatalf("got %q, %#v, want trouble with %q and a hint", got, err, c.trouble)
				}
				if strings.Contains(trouble.What, secretToken) {
					t.Errorf("got %q, which shows the secret", trouble.What)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if want = strings.ReplaceAll(want, "{dir}", u.dir); !strings.Contains(got, want) {
					t.Errorf("got no %q in\n%s", want, got)
				}
			}
			for _, not := range c.not {
				if strings.Contains(got, not) {
					t.Errorf("got %q in\n%s", not, got)
				}
			}
		})
	}
}

// A file that others could write is not believed.
func TestOthersFile(t *testing.T) {
	u := newUser(t)
	u.write("home/.npmrc", "registry=https://p.example.org/\n")
	if err := os.Chmod(filepath.Join(u.dir, "home/.npmrc"), 0o602); err != nil {
		t.Fatal(err)
	}
	if _, err := Fragment("npm", u.world()); err == nil || !strings.Contains(err.Error(), "writable by everybody") {
		t.Errorf("got %v, want a refusal", err)
	}
	u = newUser(t)
	u.write("work/planted", "registry=https://p.example.org/\n")
	if err := os.MkdirAll(filepath.Join(u.dir, "home"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../work/planted", filepath.Join(u.dir, "home/.npmrc")); err != nil {
		t.Fatal(err)
	}
	if _, err := Fragment("npm", u.world()); err == nil || !strings.Contains(err.Error(), "lies in the workspace") {
		t.Errorf("link: got %v, want a refusal", err)
	}
}

// Whatever stands in the files, what comes out is lines of the expected shape:
// no text can become a key of the policy.
func FuzzFragment(f *testing.F) {
	for _, s := range []string{"registry=https://p.example.org/\n", "[source.x]\nregistry = \"sparse+https://p/\"\n", "[global]\nindex-url=https://p/\n", "GOPROXY=https://p/,direct\nGOSUMDB=p x\n"} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		u := user{t, dir, map[string]string{"GOROOT": "/nonexistent", "PIP_CONFIG_FILE": dir + "/home/.npmrc", "GOENV": dir + "/home/.npmrc", "CARGO_HOME": dir + "/cargo"}}
		u.write("home/.npmrc", text)
		u.write("cargo/config.toml", text)
		for _, client := range []string{"npm", "pip", "go", "cargo"} {
			out, err := Fragment(client, u.world())
			if err != nil {
				continue
			}
			for line := range strings.Lines(out) {
				key := strings.TrimRight(line, "\n")
				if key != "" && key[0] != ' ' && key != "network:" && key != "credentials:" && key != "env:" && key != "filesystem:" {
					t.Errorf("%s: got the line %q", client, line)
				}
			}
		}
	})
}
