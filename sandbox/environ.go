package sandbox

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// secretName recognises names that usually hold a secret. A name that the
// policy allows by a pattern is still kept out when it looks like one; listing
// it under env.secret lets it pass.
var secretName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(^|_)(KEY|KEYS|APIKEY|TOKEN|TOKENS|SECRET|SECRETS|PASSWORD|PASSWD|PASS|PASSPHRASE|PWD_HASH|CREDENTIAL|CREDENTIALS|AUTH|COOKIE|SESSION|DSN|PRIVATE|CERT_KEY|PAT|CREDS|JWT|BEARER|WEBHOOK|CONNECTION_STRING)(_|$)|_PWD$|^(OP_SESSION|DATABASE_URL|REDIS_URL|MONGO|PG(PASSWORD|PASSFILE)|AWS_|AZURE_|GOOGLE_APPLICATION|GCP_|NPM_CONFIG_.*AUTH|GH_|GITHUB_|GITLAB_)`)
})

// neverInherit are names that steer a loader, an interpreter or a client; they
// pass only when the policy sets them.
var neverInherit = []string{
	"LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES", "RES_OPTIONS", "LOCALDOMAIN",
	"PYTHON*", "NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "NODE_TLS_*", "PERL5*", "PERLLIB", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS",
	"BASH_ENV", "ENV", "BASH_FUNC_*", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "PS4", "IFS", "ZDOTDIR", "CDPATH", "GIT_*",
	"CLASSPATH", "MAVEN_OPTS", "GRADLE_OPTS", "LUA_*", "PHPRC", "PHP_INI_*", "R_*", "GEM_*", "BUNDLE_*", "ERL_*", "ELIXIR_*", "DENO_*", "BUN_*", "TCLLIBPATH",
	"MAKEFLAGS", "MAKEFILES", "GO*", "CARGO_*", "RUST*", "CMAKE_*", "npm_*", "NPM_*", "YARN_*", "PIP_*", "UV_*", "CONDA_*",
	"LESSOPEN", "LESSCLOSE", "MANPAGER", "BROWSER", "SSH_ASKPASS", "VIMINIT", "EXINIT", "INPUTRC", "TERMINFO*",
	"OPENSSL_*", "SSLKEYLOGFILE", "CURL_HOME", "WGETRC", "KUBECONFIG", "GTK_*", "GIO_*", "GST_*", "QT_*",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE",
	"DBUS_*", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DISPLAY", "WAYLAND_*", "XAUTHORITY", "PULSE_SERVER",
	"DOCKER_*", "CONTAINER_HOST", "TMUX*", "STY", "INVOCATION_ID", "LISTEN_*", "NOTIFY_SOCKET", "JOURNAL_STREAM", "XDG_*",
	"HERMES_YOLO_MODE", "HERMES_ACCEPT_HOOKS", "HERMES_MANAGED_DIR", "_HERMES_FORCE_*", "GODEBUG",
}

// environ is the environment inside and what became of the caller's.
type environ struct {
	vars    map[string]string
	dropped []string
}

// filterEnv applies the allow-list to the caller's environment.
func filterEnv(e policy.Env, caller []string) environ {
	out := environ{vars: map[string]string{}}
	for _, kv := range caller {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if pass, _ := EnvVerdict(e, name); pass {
			out.vars[name] = value
		} else {
			out.dropped = append(out.dropped, name)
		}
	}
	for name, value := range e.Set {
		out.vars[name] = value
	}
	slices.Sort(out.dropped)
	return out
}

// EnvVerdict tells whether a variable of the caller passes, and why.
func EnvVerdict(e policy.Env, name string) (bool, string) {
	exact := slices.ContainsFunc(e.Allow, func(n policy.Name) bool { return n.Text == name })
	if !exact && !matchesName(e.Allow, name) {
		return false, "env.allow does not list it"
	}
	if matchesAny(neverInherit, name) && !exact {
		return false, "it steers a loader, an interpreter or a client, and env.allow does not name it exactly"
	}
	if secretName().MatchString(name) && !matchesName(e.Secret, name) {
		return false, "its name looks like a secret, and env.secret does not list it"
	}
	return true, "env.allow lists it"
}

func matchesName(list []policy.Name, name string) bool {
	return slices.ContainsFunc(list, func(n policy.Name) bool { return matchName(n.Text, name) })
}

func matchesAny(list []string, name string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return matchName(p, name) })
}

// matchName gives "*" its one meaning in names: any run of characters.
func matchName(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// caVariables all point at the merged bundle: one that is left as the caller
// had it would win over the system's place.
var caVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE",
	"CARGO_HTTP_CAINFO", "NIX_SSL_CERT_FILE", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "NODE_EXTRA_CA_CERTS",
	"DENO_CERT", "HTTPLIB2_CA_CERTS", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "CODEX_CA_CERTIFICATE", "BUN_CA_CERTS",
}

func (e environ) list() []string {
	out := make([]string, 0, len(e.vars))
	for k, v := range e.vars {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}
