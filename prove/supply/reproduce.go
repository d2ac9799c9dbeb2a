package supply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// command is a command in the checkout.
func (r *run) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = r.o.Root, append(os.Environ(), "CGO_ENABLED=1")
	return cmd
}

// workshop is a place to build in that has nothing in common with another one.
type workshop struct {
	dir, umask string
	env        []string
}

// workshops gives two clones of the commit, each with a home and caches of its own.
// Modules come from this machine's download cache, and are checked against go.sum.
func (r *run) workshops(ctx context.Context) ([]workshop, error) {
	goenv, err := output(r.command(ctx, "go", "env", "GOMODCACHE", "GOPROXY"))
	if err != nil {
		return nil, err
	}
	cache, proxy, _ := strings.Cut(strings.TrimSpace(goenv), "\n")
	var all []workshop
	for i, w := range []struct{ dir, umask, tz, host, lang string }{
		{"a", "022", "UTC", "one", "C"}, {"some where/else entirely", "077", "Asia/Kathmandu", "another.example.org", "C.UTF-8"},
	} {
		base := filepath.Join(r.o.Work, "workshop", fmt.Sprint(i))
		if err := removeAll(base); err != nil {
			return nil, err
		}
		// A space in a path is no problem of the build, but one of cgo's flags.
		dir := filepath.Join(base, strings.ReplaceAll(w.dir, " ", "-"))
		if out, err := r.command(ctx, "git", "clone", "-q", "--no-hardlinks", r.o.Root, dir).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("clone: %w: %s", err, out)
		}
		home := filepath.Join(base, "home")
		if err := os.MkdirAll(home, 0o755); err != nil {
			return nil, err
		}
		env := []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + home, "USER=builder" + w.host, "LOGNAME=builder" + w.host, "HOSTNAME=" + w.host, "TZ=" + w.tz, "LC_ALL=" + w.lang,
			"GOPATH=" + filepath.Join(base, "gopath"), "GOMODCACHE=" + filepath.Join(base, "modules"), "GOCACHE=" + filepath.Join(base, "cache"), "GOTMPDIR=" + home,
			"GOPROXY=file://" + filepath.Join(cache, "cache", "download") + "," + proxy, "GOSUMDB=off", "GOFLAGS=-buildvcs=false -modcacherw", "GOTOOLCHAIN=local",
		}
		all = append(all, workshop{dir, w.umask, env})
	}
	return all, nil
}

// removeAll removes a tree in which modules may be write-protected.
func removeAll(dir string) error {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// make runs a target of the Makefile, with the workshop's umask.
func (w workshop) make(ctx context.Context, target string) error {
	cmd := exec.CommandContext(ctx, "bash", "-c", `umask "$1" && exec make --no-print-directory "$2"`, "bash", w.umask, target)
	cmd.Dir, cmd.Env = w.dir, w.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("make %s in %s: %w: %s", target, w.dir, err, tail(string(out)))
	}
	return nil
}

func tail(s string) string {
	s = oneLine(s)
	return s[max(0, len(s)-600):]
}

// binary builds twice from nothing: the second time at another place, from sources
// that look older.
func (r *run) binary(ctx context.Context) (string, error) {
	if r.o.Short {
		return r.binaryShort(ctx)
	}
	shops, err := r.workshops(ctx)
	if err != nil {
		return "", err
	}
	if err := shops[1].age(400 * 24 * time.Hour); err != nil {
		return "", err
	}
	var sums []string
	for _, w := range shops {
		if err := w.make(ctx, "build"); err != nil {
			return "", err
		}
		sum, err := sumOf(filepath.Join(w.dir, "bin", "hermes-wrap"))
		if err != nil {
			return "", err
		}
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] {
		return "", fmt.Errorf("two builds of one commit gave %v", sums)
	}
	return "sha256 " + sums[0] + ", twice", nil
}

// age makes all files of the checkout look older.
func (w workshop) age(by time.Duration) error {
	then := time.Now().Add(-by)
	return filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/.git/") {
			return err
		}
		return os.Chtimes(path, then, then)
	})
}

// binaryShort builds twice in two directories with the build cache of this machine:
// what depends on the directory or on the moment shows, what depends on the cache
// does not.
func (r *run) binaryShort(ctx context.Context) (string, error) {
	shops, err := r.workshops(ctx)
	if err != nil {
		return "", err
	}
	var sums []string
	for _, w := range shops {
		for i, e := range w.env {
			if strings.HasPrefix(e, "GOCACHE=") || strings.HasPrefix(e, "GOMODCACHE=") {
				name, _, _ := strings.Cut(e, "=")
				value, err := output(r.command(ctx, "go", "env", name))
				if err != nil {
					return "", err
				}
				w.env[i] = name + "=" + strings.TrimSpace(value)
			}
		}
		if err := w.make(ctx, "build"); err != nil {
			return "", err
		}
		sum, err := sumOf(filepath.Join(w.dir, "bin", "hermes-wrap"))
		if err != nil {
			return "", err
		}
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] {
		return "", fmt.Errorf("two builds of one commit gave %v", sums)
	}
	return "sha256 " + sums[0] + ", twice, with one build cache", nil
}

// packages makes the packages in both workshops.
func (r *run) packages(ctx context.Context) (string, error) {
	tools := filepath.Join(r.o.Work, "tools")
	if out, err := output(r.command(ctx, "packaging/tool", "nfpm", filepath.Join(tools, "nfpm"))); err != nil {
		if unreachable(out + err.Error()) {
			r.missing("packages", "reproducible packages", "nfpm could not be fetched")
			return "not exercised", nil
		}
		return "", err
	}
	var lists []string
	for i, dir := range []string{"a", "some-where/else-entirely"} {
		w := filepath.Join(r.o.Work, "workshop", fmt.Sprint(i), dir)
		cmd := exec.CommandContext(ctx, "packaging/build", "bin/hermes-wrap")
		cmd.Dir = w
		// Only what is packaged counts here: the tools are this machine's.
		cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "CGO_ENABLED=1", "GOFLAGS=-buildvcs=false", "TZ="+[]string{"UTC", "Asia/Kathmandu"}[i])
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("packaging/build: %w: %s", err, tail(string(out)))
		}
		b, err := os.ReadFile(filepath.Join(w, "bin", "packages", "SHA256SUMS"))
		if err != nil {
			return "", err
		}
		lists = append(lists, string(b))
	}
	if lists[0] != lists[1] || strings.Count(lists[0], "\n") < 4 {
		return "", fmt.Errorf("two runs gave %q and %q", lists[0], lists[1])
	}
	return fmt.Sprintf("%d files (deb, rpm, apk, tarball), the same bytes twice", strings.Count(lists[0], "\n")), nil
}

func sumOf(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// network is what programs say that reach nobody.
var network = regexp.MustCompile(`(?i)(no such host|could not resolve|temporary failure in name resolution|connection refused|i/o timeout|network is unreachable|deadline exceeded|module lookup disabled by GOPROXY=off|proxyconnect|TLS handshake timeout)`)

func unreachable(text string) bool { return network.MatchString(text) }

// errControl is a check that found nothing where there was something to find.
var errControl = errors.New("the control was not found: the check proves nothing")
