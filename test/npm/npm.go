// Package npm installs packages of npm for tests: clients, servers and agents
// of others. testdata/npm names their versions, and where npm can make one, a
// lock file those of all that they need.
package npm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// Require gives the directory that holds node_modules of a set ("peers",
// "agents"). It is installed once for each content of those files, below
// $HERMES_NPM or the user's cache directory. A set that cannot be installed
// skips the test, or fails it where everything must work.
func Require(t testing.TB, set string) string {
	t.Helper()
	_, here, _, ok := runtime.Caller(0)
	harness.Require(t, ok, "the source tree")
	dir, err := install(filepath.Join(filepath.Dir(here), "..", "..", "testdata", "npm", set))
	harness.Require(t, err == nil, fmt.Sprintf("the npm packages %q (%v)", set, err))
	return dir
}

func install(source string) (string, error) {
	names, err := os.ReadFile(filepath.Join(source, "package.json"))
	if err != nil {
		return "", err
	}
	files, how := map[string][]byte{"package.json": names}, []string{"install", "--no-package-lock"}
	lock, err := os.ReadFile(filepath.Join(source, "package-lock.json"))
	if err == nil {
		files["package-lock.json"], how = lock, []string{"ci"}
	}
	base, err := baseDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(names, lock...))
	dir := filepath.Join(base, filepath.Base(source)+"-"+hex.EncodeToString(sum[:6]))
	unlock, err := lockFile(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return "", err
	}
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return "", err
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(fresh, name), b, 0o644); err != nil {
			return "", err
		}
	}
	cmd := exec.Command("npm", append(how, "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")...)
	cmd.Dir = fresh
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm %s: %w: %.2000s", how[0], err, out)
	}
	return dir, os.Rename(fresh, dir)
}

func baseDir() (string, error) {
	base := os.Getenv("HERMES_NPM")
	if base == "" && os.Getuid() == 0 {
		base = "/var/tmp/hermes-wrap-tests/npm" // commands run as another user, for whom /root is closed
	}
	if base == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		base = filepath.Join(cache, "hermes-wrap-tests", "npm")
	}
	return base, os.MkdirAll(base, 0o755)
}

// lockFile waits for its turn: packages are tested beside each other.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
