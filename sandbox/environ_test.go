package sandbox

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func namesOf(texts ...string) (out []policy.Name) {
	for _, t := range texts {
		out = append(out, policy.Name{Text: t})
	}
	return out
}

func TestEnvVerdict(t *testing.T) {
	cases := []struct {
		name   string
		env    policy.Env
		passes []string
		drops  []string
	}{
		{name: "the zero value passes nothing", drops: []string{"PATH", "HOME", ""}},
		{
			name: "a pattern", env: policy.Env{Allow: namesOf("LC_*", "PATH")},
			passes: []string{"LC_ALL", "LC_", "PATH"}, drops: []string{"LC", "XLC_ALL", "path", "PATHX"},
		},
		{
			name: "names that look like secrets", env: policy.Env{Allow: namesOf("*")},
			passes: []string{"LANG", "KEYBOARD", "TOKENIZERS_PARALLELISM", "AUTHOR", "MONKEY", "PWD", "OLDPWD", "PATH", "COMPAT"},
			drops: []string{
				"OPENAI_API_KEY", "GITHUB_TOKEN", "token", "DB_PASSWORD", "DATABASE_URL", "AWS_PROFILE", "SESSION_COOKIE",
				"MY_SECRET_NAME", "PGPASSFILE", "SSH_PRIVATE_KEY", "SENTRY_DSN", "MYSQL_PWD", "MY_PAT", "DB_CREDS", "MY_JWT", "SLACK_WEBHOOK_URL",
				"STORAGE_CONNECTION_STRING", "MY_BEARER",
			},
		},
		{
			name: "names that steer a loader, an interpreter or a client", env: policy.Env{Allow: namesOf("*")},
			drops: []string{
				"LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "BASH_ENV", "BASH_FUNC_ls%%", "ENV",
				"GIT_SSH_COMMAND", "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK",
				"DISPLAY", "DOCKER_HOST", "XDG_RUNTIME_DIR", "JAVA_TOOL_OPTIONS", "PERL5LIB", "GODEBUG", "HERMES_YOLO_MODE",
				"LESSOPEN", "LESSCLOSE", "ZDOTDIR", "MAKEFLAGS", "RUSTC_WRAPPER", "GOFLAGS", "GOPROXY", "OPENSSL_CONF", "CLASSPATH",
				"LUA_INIT", "PHP_INI_SCAN_DIR", "CURL_HOME", "WGETRC", "PIP_INDEX_URL", "npm_config_registry", "NPM_CONFIG_REGISTRY",
				"CARGO_HOME", "SSLKEYLOGFILE", "VIMINIT", "INPUTRC", "MANPAGER", "BROWSER", "KUBECONFIG", "UV_INDEX_URL", "GEM_HOME",
				"SSH_ASKPASS", "GTK_MODULES", "QT_PLUGIN_PATH", "R_PROFILE", "TERMINFO", "_JAVA_OPTIONS", "MAVEN_OPTS",
			},
		},
		{
			name: "such a name passes when it is written out", env: policy.Env{Allow: namesOf("NODE_OPTIONS", "GIT_*")},
			passes: []string{"NODE_OPTIONS"}, drops: []string{"GIT_SSH_COMMAND"},
		},
		{
			name: "a secret needs both lists", env: policy.Env{Allow: namesOf("*_KEY"), Secret: namesOf("OPENAI_*", "OTHER_TOKEN")},
			passes: []string{"OPENAI_API_KEY"}, drops: []string{"ANTHROPIC_API_KEY", "OTHER_TOKEN"},
		},
		{
			name: "written out is not enough for a secret", env: policy.Env{Allow: namesOf("OPENAI_API_KEY")},
			drops: []string{"OPENAI_API_KEY"},
		},
	}
	for _, c := range cases {
		for _, n := range c.passes {
			if ok, why := EnvVerdict(c.env, n); !ok {
				t.Errorf("%s: %q: got dropped (%s), want passed", c.name, n, why)
			}
		}
		for _, n := range c.drops {
			if ok, why := EnvVerdict(c.env, n); ok {
				t.Errorf("%s: %q: got passed (%s), want dropped", c.name, n, why)
			}
		}
	}
}

func TestFilterEnv(t *testing.T) {
	e := policy.Env{Allow: namesOf("PATH", "LC_*"), Set: map[string]string{"TMPDIR": "/tmp", "LC_ALL": "C"}}
	got := filterEnv(e, []string{"PATH=/bin", "LC_ALL=de", "LC_TIME=a=b", "SECRET=x", "=odd", "no equals sign", "SECRET2="})
	if diff := cmp.Diff([]string{"LC_ALL=C", "LC_TIME=a=b", "PATH=/bin", "TMPDIR=/tmp"}, got.list()); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"SECRET", "SECRET2"}, got.dropped); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
}

// A variable of the caller's own would win over the bundle's place.
func TestCertificateVariablesAreNotInherited(t *testing.T) {
	for _, name := range caVariables {
		e := policy.Env{Allow: namesOf("*")}
		if pass, _ := EnvVerdict(e, name); pass && matchesAny(neverInherit, name) {
			t.Errorf("%s: got passed, want it set by the launcher alone", name)
		}
		if strings.ToUpper(name) != name {
			t.Errorf("%s: got lower case, want upper", name)
		}
	}
}
