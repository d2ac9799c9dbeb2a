package policy

import (
	"path/filepath"
	"strconv"
	"strings"
)

// Options says what to load and holds the outside world that loading needs.
type Options struct {
	// Arg is --policy as it was typed: a path, else a name. Empty: the default
	// for Command.
	Arg string
	// Given is true when --policy was typed; an empty Arg is then a mistake
	// and never the default.
	Given bool
	// Command is the base name of the command: "hermes" has its own default,
	// hermes-strict; anything else has strict.
	Command string
	// Cwd is the directory that relative arguments and workspace.path start from.
	Cwd string
	// Home is what "~" and ${HOME} mean. It is the one source for both.
	Home string
	// PasswdHome is the home directory in the password database; empty looks
	// it up in /etc/passwd. It only serves to warn, and to protect both directories.
	PasswdHome string
	// Getenv reads the caller's environment: XDG_* and HERMES_HOME. nil: no
	// variable is set.
	Getenv func(string) string
	// Builtin gives the text of a built-in policy. nil: there is none.
	Builtin func(name string) ([]byte, bool)
	// Fragment gives the text of a built-in fragment ("provider/openrouter").
	// Problems say what it lacks on this machine; any other error is that of a
	// file. nil: there is none.
	Fragment func(name string) ([]byte, error)
	// Fragments are the names that Fragment knows.
	Fragments []string
	// FloorPath is the administrator's policy, which others can only tighten.
	// It must belong to root and be writable by nobody else. A file that does
	// not exist, or an empty path, is no floor.
	FloorPath string
	// ProjectFile is the project's own policy, which may only tighten. Empty:
	// .hermes-wrap.yaml in the workspace. It need not exist.
	ProjectFile string
	// SearchDirs is where names are looked up before the built-ins. nil: the
	// user's configuration directory, then /etc/hermes-wrap.
	SearchDirs []string
	// Flags is the last layer.
	Flags Flags
	// Uid is the user who may own policy files, beside root.
	Uid int
}

// Flags are the policy flags of the command line, as typed.
type Flags struct {
	Read      []string // paths, also relative to the working directory
	Write     []string // likewise
	Exec      []string // likewise
	Env       []string // NAME (copied) or NAME=VALUE (set)
	Publish   []string // as in network.publish
	AllowHost []string // HOST[:PORT]
	Enable    []string // names of fragments
}

const projectFile = ".hermes-wrap.yaml"

func (o Options) getenv(name string) string {
	if o.Getenv == nil {
		return ""
	}
	return o.Getenv(name)
}

// defaultName is the policy without --policy.
func (o Options) defaultName() string {
	if o.Command == "hermes" {
		return "hermes-strict"
	}
	return "strict"
}

func (o Options) searchDirs() []string {
	if o.SearchDirs != nil {
		return o.SearchDirs
	}
	var dirs []string
	if d := o.xdg("XDG_CONFIG_HOME", ".config"); d != "" {
		dirs = append(dirs, filepath.Join(d, "hermes-wrap"))
	}
	return append(dirs, "/etc/hermes-wrap")
}

// xdg gives a base directory; a relative value is to be ignored, says the
// XDG specification.
func (o Options) xdg(name, fallback string) string {
	if v := o.getenv(name); filepath.IsAbs(v) {
		return filepath.Clean(v)
	}
	if o.Home == "" || fallback == "" {
		return ""
	}
	return filepath.Join(o.Home, fallback)
}

// variables gives the values of the path variables; those without a value
// are left out, and using one is then a mistake.
func (o Options) variables(workspace string) map[string]string {
	vars := map[string]string{
		"WORKSPACE":       workspace,
		"HOME":            o.Home,
		"TMP":             "/tmp",
		"HERMES_HOME":     o.xdg("HERMES_HOME", ".hermes"),
		"XDG_CONFIG_HOME": o.xdg("XDG_CONFIG_HOME", ".config"),
		"XDG_CACHE_HOME":  o.xdg("XDG_CACHE_HOME", ".cache"),
		"XDG_DATA_HOME":   o.xdg("XDG_DATA_HOME", ".local/share"),
		"XDG_STATE_HOME":  o.xdg("XDG_STATE_HOME", ".local/state"),
		"XDG_RUNTIME_DIR": o.xdg("XDG_RUNTIME_DIR", ""),
	}
	if vars["XDG_RUNTIME_DIR"] == "" {
		vars["XDG_RUNTIME_DIR"] = "/run/user/" + strconv.Itoa(o.Uid)
	}
	for k, v := range vars {
		if v == "" {
			delete(vars, k)
		}
	}
	return vars
}

// homes lists every directory that is somebody's idea of the user's home, so
// that a changed HOME does not open the real one.
func (o Options) homes() []string {
	var hs []string
	for _, h := range []string{o.Home, o.passwdHome()} {
		if strings.HasPrefix(h, "/") {
			hs = append(hs, filepath.Clean(h))
		}
	}
	return hs
}
