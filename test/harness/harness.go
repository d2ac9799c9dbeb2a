// Package harness runs one command twice for the tests that need the real
// binary: bare, and inside a wrapper. It builds nothing. The environment says
// what to test:
//
//	HERMES_WRAP_BIN    the hermes-wrap binary; it is called as
//	                   BIN --policy FILE -- CMD…
//	HERMES_WRAP_ARGV   another wrapper instead, as words; {dir}, {home} and
//	                   {policy} are replaced. For comparisons.
//	HERMES_TEST_USER   the ordinary user that commands run as when the test
//	                   itself runs as root
//	HERMES_TEST_PATH   the PATH of the commands
//	HERMES_TEST_DIR    where workspaces are made; absent: the user's home
//	HERMES_MUST_WORK   1 turns every skip into a failure
package harness

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const defaultPath = "/usr/local/bin:/usr/local/go/bin:/usr/bin:/bin:/usr/sbin:/sbin"

// Require skips the test when ok is false, or fails it under
// HERMES_MUST_WORK=1.
func Require(t testing.TB, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("HERMES_MUST_WORK") == "1" {
		t.Fatalf("missing: %s", what)
	}
	t.Skipf("missing: %s", what)
}

// Host is who runs commands, where, and through which wrapper.
type Host struct {
	// User is the account that commands run as.
	User user.User
	// Path is the PATH of the commands.
	Path string
	// Home is the HOME of the commands, a directory of this test alone.
	Home string

	cred    *syscall.Credential // nil: the test's own account
	wrapper []string            // empty: no wrapper was given
}

// NewHost reads the environment and makes the home directory; the test
// removes it at its end.
func NewHost(t testing.TB) Host {
	t.Helper()
	h := Host{Path: defaultPath, wrapper: wrapperFromEnv()}
	if p := os.Getenv("HERMES_TEST_PATH"); p != "" {
		h.Path = p
	}
	account, err := user.Current()
	if name := os.Getenv("HERMES_TEST_USER"); name != "" && os.Getuid() == 0 {
		account, err = user.Lookup(name)
	}
	if err != nil {
		t.Fatalf("look up the account: %v", err)
	}
	h.User = *account
	uid, gid := ids(t, h.User)
	if os.Getuid() == 0 && uid != 0 {
		h.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	h.Home = h.makeHome(t)
	return h
}

// makeHome makes the directory in the account's own home, where people work;
// a private /tmp inside would otherwise hide a mistake in the mounts.
func (h Host) makeHome(t testing.TB) string {
	t.Helper()
	parent := os.Getenv("HERMES_TEST_DIR")
	if parent == "" {
		parent = h.User.HomeDir
	}
	home, err := os.MkdirTemp(parent, "hermes-test-")
	if err != nil {
		t.Fatalf("make a home: %v", err)
	}
	t.Cleanup(func() { removeAll(home) })
	h.own(t, home)
	return home
}

// removeAll removes trees with read-only directories too (Go's module cache,
// a repository whose hooks were locked).
func removeAll(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // #nosec: a directory of this test
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}

// Dir makes a directory below the home that belongs to the account.
func (h Host) Dir(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(h.Home, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("make %q: %v", dir, err)
	}
	h.own(t, dir)
	return dir
}

// Write makes a file that belongs to the account, with the directories that
// are missing on the way.
func (h Host) Write(t testing.TB, path, text string) {
	t.Helper()
	h.makeParents(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatalf("write %q: %v", path, err)
	}
	h.own(t, path)
}

func (h Host) makeParents(t testing.TB, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		return
	}
	h.makeParents(t, filepath.Dir(dir))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("make %q: %v", dir, err)
	}
	h.own(t, dir)
}

func (h Host) own(t testing.TB, path string) {
	t.Helper()
	if h.cred == nil {
		return
	}
	if err := os.Chown(path, int(h.cred.Uid), int(h.cred.Gid)); err != nil {
		t.Fatalf("chown %q: %v", path, err)
	}
}

// Find gives the file that a command name stands for on the commands' PATH, or "".
func (h Host) Find(name string) string {
	for _, dir := range filepath.SplitList(h.Path) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// RequireCommands requires that every name can be found.
func (h Host) RequireCommands(t testing.TB, names []string) {
	t.Helper()
	for _, name := range names {
		Require(t, h.Find(name) != "", fmt.Sprintf("the command %q (testdata/everyday/packages.txt)", name))
	}
}

// RequireWrapper requires that a wrapper was given.
func (h Host) RequireWrapper(t testing.TB) {
	t.Helper()
	Require(t, len(h.wrapper) > 0, "HERMES_WRAP_BIN, the binary to test")
}

// Wrapped gives argv as run through the wrapper with a policy file and dir as
// the workspace.
func (h Host) Wrapped(policy, dir string, argv []string) []string {
	words := strings.NewReplacer("{dir}", dir, "{home}", h.Home, "{policy}", policy)
	var out []string
	for _, word := range h.wrapper {
		out = append(out, words.Replace(word))
	}
	return append(out, argv...)
}

func wrapperFromEnv() []string {
	if bin := os.Getenv("HERMES_WRAP_BIN"); bin != "" {
		return []string{bin, "--policy", "{policy}", "--"}
	}
	return strings.Fields(os.Getenv("HERMES_WRAP_ARGV"))
}

func ids(t testing.TB, u user.User) (uid, gid int) {
	t.Helper()
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		t.Fatalf("parse the uid: %v", err)
	}
	gid, err = strconv.Atoi(u.Gid)
	if err != nil {
		t.Fatalf("parse the gid: %v", err)
	}
	return uid, gid
}

// CopyPolicy puts a policy file where the account can read it and gives its
// path; it lies in a directory of its own, below no workspace.
func (h Host) CopyPolicy(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.Dir(t, "policy"), filepath.Base(file))
	h.Write(t, path, string(text))
	return path
}
