package escape

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A peer is another sandbox that the table can be run through, in the place of
// ours. Its configuration is the tightest that its own documentation gives for a
// command that works in one directory: that directory writable, the rest of the
// home directory not to be seen where it can hide things, no network.
type peer struct {
	// Says describes the configuration.
	Says string
	// Script gives the body of the sandbox command, and may write files.
	Script func(c peerPlace) string
	// Program is what must be there, on the PATH or in the directory of tools.
	Program string
}

// peerPlace is what a peer is told about one run.
type peerPlace struct {
	*place
	m       *maker
	Program string
	// Template is the command line that a user gave.
	Template string
	account  account
}

// clean starts a command with an environment without secrets, as the
// documentation of all of these asks its users to.
func (c peerPlace) clean() string {
	return fmt.Sprintf(`exec env -i PATH=%s HOME=%s USER=%s LOGNAME=%s SHELL=/bin/sh LANG=C.UTF-8 TERM=dumb `,
		quoted(binPath), quoted(c.Home), quoted(c.account.Name), quoted(c.account.Name))
}

const (
	custom   = "@other"
	allPeers = "all"
	firejail = "@firejail"
)

// peers are the sandboxes that are known, by their configuration's name.
var peers = map[string]peer{ //nolint:gochecknoglobals // a constant
	custom: {Says: "the command line as given, {dir} and {home} filled in.", Script: func(c peerPlace) string {
		return "exec " + strings.NewReplacer("{dir}", quoted(c.Work), "{home}", quoted(c.Home)).Replace(c.Template) + ` "$@"`
	}},
	"@bubblewrap": {
		Program: "bwrap",
		Says:    "every namespace unshared, the system read-only, private /tmp and home, the workspace writable, a new session, a clean environment.",
		Script: func(c peerPlace) string {
			args := "--unshare-all --die-with-parent --new-session --ro-bind /usr /usr"
			for _, d := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
				args += " --ro-bind-try " + d + " " + d
			}
			for _, f := range []string{"/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/ssl/certs", "/etc/alternatives", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/hosts"} {
				args += " --ro-bind-try " + f + " " + f
			}
			return c.clean() + fmt.Sprintf(`%s %s --proc /proc --dev /dev --tmpfs /tmp --tmpfs %s --bind %s %s --chdir %s -- "$@"`,
				c.Program, args, quoted(c.Home), quoted(c.Work), quoted(c.Work), quoted(c.Work))
		},
	},
	firejail: {
		Program: "firejail",
		Says:    "no capabilities, no new privileges, a user namespace, its default filter, no network, no D-Bus, private /tmp, /dev and /var/cache, of the home directory the workspace alone, the system read-only, a clean environment.",
		Script: func(c peerPlace) string {
			return c.clean() + fmt.Sprintf(`%s --quiet --noprofile --deterministic-exit-code --deterministic-shutdown --caps.drop=all --nonewprivs --noroot --nogroups `+
				`--seccomp --seccomp.block-secondary --restrict-namespaces --protocol=unix,inet,inet6 --net=none --ipc-namespace --dbus-user=none --dbus-system=none `+
				`--private-tmp --private-dev --private-cache --disable-mnt --nosound --noinput --novideo --no3d --nodvd --notv --nou2f `+
				`--read-only=/ --read-write=%s --whitelist=%s -- "$@"`,
				c.Program, quoted(c.Work), quoted(c.Work))
		},
	},
	"@landrun": {
		Program: "landrun",
		Says:    "the system readable and executable, the workspace writable and executable, no TCP, a clean environment.",
		Script: func(c peerPlace) string {
			return c.clean() + fmt.Sprintf(`%s --best-effort --rox /usr --rox /bin --rox /lib --rox /lib64 --ro /etc --ro /proc --rw /dev/null --ro /dev/urandom --rwx %s --env PATH --env HOME --env USER --env LANG -- "$@"`,
				c.Program, quoted(c.Work))
		},
	},
	"@landlock-restrict": {
		Program: "landlock-restrict",
		Says:    "the example program of go-landlock: the system readable and executable, the workspace writable, a clean environment. It holds files alone.",
		Script: func(c peerPlace) string {
			return "command=$(command -v -- \"$1\")\nshift\n" + c.clean() +
				fmt.Sprintf(`%s -ro /usr /bin /lib /lib64 /etc /proc -rw /dev %s -- "$command" "$@"`, c.Program, quoted(c.Work))
		},
	},
	"@sandbox-runtime": {
		Program: "srt",
		Says:    "no domain allowed, writing in the workspace alone, reading of the home directory and of what lies beside the workspace denied, a clean environment.",
		Script: func(c peerPlace) string {
			settings := filepath.Join(c.Dir, "policy", "srt.json")
			c.m.write(settings, fmt.Sprintf(`{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[%q],"allowRead":[%q],"allowWrite":[%q],"denyWrite":[]}}`, c.Dir, c.Work, c.Work), 0o644)
			return c.clean() + fmt.Sprintf(`%s --settings %s -- "$@"`, c.Program, quoted(settings))
		},
	},
	"@codex": {
		Program: "codex",
		Says:    "Codex's own sandbox for commands, with a permission profile: the minimum of the system readable, the workspace writable, network off; a clean environment.",
		Script: func(c peerPlace) string {
			home := filepath.Join(c.State, "config")
			tools, _, _ := strings.Cut(c.Program, "/node_modules/")
			c.m.write(filepath.Join(home, "config.toml"), fmt.Sprintf(`default_permissions = "work"
[permissions.work.filesystem]
":minimal" = "read"
":project_roots" = "write"
%q = "read"
%q = "read"
[permissions.work.network]
enabled = false
`, home, tools), 0o644)
			return c.clean() + fmt.Sprintf(`CODEX_HOME=%s %s sandbox -P work -- "$@"`, quoted(home), c.Program)
		},
	},
}

// peersOf gives the configurations that --sandbox names: a known sandbox, several
// with commas, "all", or a command line.
func peersOf(text string) (configurations []string, template string) {
	if text == allPeers {
		for name := range peers {
			if name != custom {
				configurations = append(configurations, name)
			}
		}
		slices.Sort(configurations)
		return configurations, ""
	}
	for name := range strings.SplitSeq(text, ",") {
		if _, ok := peers["@"+name]; !ok || strings.Contains(text, " ") {
			return []string{custom}, text
		}
		configurations = append(configurations, "@"+name)
	}
	return configurations, ""
}

// program finds what a peer is started by.
func (p peer) program(tools string) string {
	for _, dir := range []string{tools, filepath.Join(tools, "node_modules", ".bin")} {
		if path := filepath.Join(dir, p.Program); tools != "" && executable(path) {
			return path
		}
	}
	return find(p.Program)
}

// missing says why a peer cannot be tried here; "" when it can.
func (p peer) missing(tools string) string {
	if p.Program != "" && p.program(tools) == "" {
		return "no " + p.Program
	}
	return ""
}
