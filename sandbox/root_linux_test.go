package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// insideNamespaces runs the test in a process with user and mount namespaces
// of its own, where it may mount; nothing of it reaches the host.
func insideNamespaces(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv("HERMES_TEST_INSIDE") == t.Name() {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatalf("make mounts private: %v", err)
		}
		test(t)
		return
	}
	RequireUserNamespaces(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.v")
	cmd.Env = append(os.Environ(), "HERMES_TEST_INSIDE="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("inside: %v\n%s", err, out)
	}
}

// asOrdinaryUser gives up every capability of the thread, so that modes count
// for the owner of the namespace too, and runs do.
func asOrdinaryUser(t *testing.T, do func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err := unix.Capset(&header, &none[0])
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("drop capabilities: %v", err)
	}
}

// bindOf is the entry for a path below dir as a plan would have it.
func bindOf(t *testing.T, dir, name string, write, exec bool) Entry {
	t.Helper()
	r, err := resolve(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Kind: KindBind, Target: "/" + name, Source: r.real, Dev: r.dev, Ino: r.ino, Dir: r.isDir(), Write: write, Exec: exec}
}

// build lays the entries in a new private root and gives its path.
func build(t *testing.T, entries ...Entry) (string, error) {
	t.Helper()
	root := newRoot(t)
	return root, buildRoot(root, entries, nil, nil)
}

// newRoot is a mount point whose mounts are gone before it is removed.
func newRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	t.Cleanup(func() {
		for unix.Unmount(root, unix.MNT_DETACH) == nil {
			continue
		}
	})
	return root
}

func mustBuild(t *testing.T, entries ...Entry) string {
	t.Helper()
	root, err := build(t, entries...)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestRootRefusesASwappedSource(t *testing.T) {
	insideNamespaces(t, func(t *testing.T) {
		for name, swap := range map[string]func(dir string) error{
			"control: nothing": func(string) error { return nil },
			"another directory": func(dir string) error {
				return errors.Join(os.Rename(dir+"/src", dir+"/old"), os.Mkdir(dir+"/src", 0o755))
			},
			"a symlink": func(dir string) error {
				return errors.Join(os.Rename(dir+"/src", dir+"/old"), os.Symlink(dir+"/old", dir+"/src"))
			},
			"a symlink above it": func(dir string) error {
				return errors.Join(os.Rename(dir, dir+".old"), os.Symlink(dir+".old", dir))
			},
			"nothing there": func(dir string) error { return os.RemoveAll(dir + "/src") },
		} {
			dir := layout(t, map[string]string{"src/file": "x"})
			t.Cleanup(func() { os.RemoveAll(dir + ".old") })
			e := bindOf(t, dir, "src", false, false)
			if err := swap(dir); err != nil {
				t.Fatal(err)
			}
			root, err := build(t, e)
			_, seen := os.Stat(root + "/src/file")
			if control := strings.HasPrefix(name, "control"); control != (err == nil) || control != (seen == nil) {
				t.Errorf("%s: got %v, file inside: %v", name, err, seen)
			}
		}
	})
}

func TestRootFollowsNoSymlinkOfATree(t *testing.T) {
	insideNamespaces(t, func(t *testing.T) {
		dir := layout(t, map[string]string{"ws/real/": "", "ws/link": "-> real", "other/file": "x", "elsewhere/": ""})
		file := bindOf(t, dir, "other", false, false)
		for target, want := range map[string]error{"/ws/real": nil, "/ws/link": unix.ELOOP, "/ws/link/below": unix.ELOOP} {
			file.Target = target
			if _, err := build(t, bindOf(t, dir, "ws", true, false), file); !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", target, err, want)
			}
		}
		// A link of the plan's own is no way for what comes later either.
		link := Entry{Kind: KindSymlink, Target: "/link", Data: "/ws"}
		file.Target = "/link/real"
		if _, err := build(t, bindOf(t, dir, "ws", true, false), link, file); !errors.Is(err, unix.ELOOP) {
			t.Errorf("a link of the root: got %v, want %v", err, unix.ELOOP)
		}
	})
}

func TestRootRestrictsTheWholeTree(t *testing.T) {
	insideNamespaces(t, func(t *testing.T) {
		dir := layout(t, map[string]string{"src/sub/": "", "src/tool": "#!/bin/sh\n"})
		if err := unix.Mount("tmpfs", dir+"/src/sub", "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir+"/src/sub", unix.MNT_DETACH) })
		for name, c := range map[string]struct {
			write, exec bool
			file, run   error
		}{
			"read-only":  {false, false, unix.EROFS, unix.EACCES},
			"writable":   {true, false, nil, unix.EACCES},
			"executable": {false, true, unix.EROFS, nil},
		} {
			root := mustBuild(t, bindOf(t, dir, "src", c.write, c.exec))
			for _, place := range []string{"/src/new", "/src/sub/new"} {
				if err := os.WriteFile(dir+place, nil, 0o644); err != nil {
					t.Errorf("%s: outside %s: got %v, want it written", name, place, err)
				}
				if err := os.WriteFile(root+place, nil, 0o644); !errors.Is(err, c.file) {
					t.Errorf("%s: %s: got %v, want %v", name, place, err, c.file)
				}
			}
			if err := exec.Command(dir + "/src/tool").Run(); err != nil {
				t.Errorf("%s: outside: run: %v", name, err)
			}
			if err := exec.Command(root + "/src/tool").Run(); !errors.Is(err, c.run) {
				t.Errorf("%s: run: got %v, want %v", name, err, c.run)
			}
			for _, place := range []string{"/src", "/src/sub"} {
				var st unix.Statfs_t
				want := int64(unix.ST_NOSUID | unix.ST_NODEV)
				if err := unix.Statfs(root+place, &st); err != nil || st.Flags&want != want {
					t.Errorf("%s: %s: got flags %#x, %v, want nosuid and nodev", name, place, st.Flags, err)
				}
			}
		}
	})
}

func TestRootCovers(t *testing.T) {
	insideNamespaces(t, func(t *testing.T) {
		files := map[string]string{"ws/.env": "secret", "ws/keys/key": "secret", "ws/.git/config": "x", "ws/.git/index": "x", "ws/a/b/file": "x"}
		dir, outside := layout(t, files), layout(t, files)
		root := mustBuild(t,
			bindOf(t, dir, "ws", true, false),
			Entry{Kind: KindPin, Target: "/ws/.git", Dir: true},
			Entry{Kind: KindMask, Target: "/ws/.env"},
			Entry{Kind: KindMask, Target: "/ws/keys", Dir: true},
			Entry{Kind: KindMask, Target: "/ws/gone"},
			Entry{Kind: KindProtect, Target: "/ws/.git/config"},
			Entry{Kind: KindProtect, Target: "/ws/a/b", Dir: true},
		)
		read := func(p string) error { _, err := os.ReadFile(p); return err }
		list := func(p string) error { _, err := os.ReadDir(p); return err }
		write := func(p string) error { return os.WriteFile(p, []byte("x"), 0o644) }
		rename := func(p string) error {
			return errors.Join(os.Rename(p, p+".moved"), ignoreNotExist(os.Rename(p+".moved", p)))
		}
		asOrdinaryUser(t, func() {
			for _, c := range []struct {
				name   string
				try    func(string) error
				path   string
				inside error
			}{
				{"read what is masked", read, "/ws/.env", unix.EACCES},
				{"write what is masked", write, "/ws/.env", unix.EROFS},
				{"list what is masked", list, "/ws/keys", unix.EACCES},
				{"read below what is masked", read, "/ws/keys/key", unix.EACCES},
				{"rename what is masked", rename, "/ws/.env", unix.EBUSY},
				{"read what is protected", read, "/ws/.git/config", nil},
				{"write what is protected", write, "/ws/.git/config", unix.EROFS},
				{"replace what is protected", rename, "/ws/.git/config", unix.EBUSY},
				{"rename its parent", rename, "/ws/.git", unix.EBUSY},
				{"write beside it", write, "/ws/.git/index", nil},
				{"write below what is protected", write, "/ws/a/b/file", unix.EROFS},
				{"rename the parent of an unpinned cover", rename, "/ws/a", nil},
			} {
				if err := c.try(outside + c.path); err != nil {
					t.Errorf("outside: %s: got %v, want it to succeed", c.name, err)
				}
				if err := c.try(root + c.path); !errors.Is(err, c.inside) {
					t.Errorf("%s: got %v, want %v", c.name, err, c.inside)
				}
			}
		})
	})
}

func ignoreNotExist(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func TestRootMakesNothingOnTheHost(t *testing.T) {
	insideNamespaces(t, func(t *testing.T) {
		files := map[string]string{"ws/file": "x", "state/": "", "other/x": "x"}
		for name, c := range map[string]struct {
			first string // the tree below which a mount point is missing
			home  bool
			want  error
		}{
			"in a tree of the host":  {"ws", false, unix.ENOENT},
			"in a home of our own":   {"state", true, nil},
			"control: in a tmpfs":    {"", false, nil},
			"beside a tree, no tree": {"none", false, nil},
		} {
			dir := layout(t, files)
			tree := Entry{Kind: KindTmpfs, Target: "/at", Size: 1 << 20, Inodes: 100, Mode: 0o755, Write: true}
			if c.first == "ws" {
				tree = bindOf(t, dir, c.first, true, false)
				tree.Target = tree.Source
			}
			if c.home {
				tree = bindOf(t, dir, c.first, true, false)
				tree.Target = "/at"
			}
			below := tree.Target
			if c.first == "none" {
				below = "/elsewhere"
			}
			inner := bindOf(t, dir, "other", false, false)
			inner.Target = below + "/a/b"
			file := Entry{Kind: KindFile, Target: below + "/c", Data: "text", Mode: 0o444}
			for _, e := range []Entry{inner, file, {Kind: KindDir, Target: below + "/d", Mode: 0o755}, {Kind: KindSymlink, Target: below + "/e", Data: "x"}} {
				if _, err := build(t, tree, e); !errors.Is(err, c.want) {
					t.Errorf("%s: %s: got %v, want %v", name, e.Kind, err, c.want)
				}
			}
			for _, where := range []string{"ws", "other"} {
				if got, err := os.ReadDir(filepath.Join(dir, where)); err != nil || len(got) != 1 {
					t.Errorf("%s: %s: got %v, %v, want one file as before", name, where, got, err)
				}
			}
		}
	})
}

func TestRootFiles(t *testing.T) {
	insideNamespaces(t, func(t *testing.T) {
		dir := layout(t, map[string]string{"etc/hosts": "the host's"})
		root := newRoot(t)
		entries := []Entry{
			{Kind: KindDir, Target: "/srv", Mode: 0o711},
			{Kind: KindFile, Target: "/run/hosts", Data: "ours", Mode: 0o444},
			{Kind: KindFile, Target: "/run/bundle", Blob: BlobBundle, Mode: 0o444},
			{Kind: KindSymlink, Target: "/bin", Data: "usr/bin"},
			bindOf(t, dir, "etc", false, false),
			{Kind: KindAlias, Target: "/etc/hosts", Source: "/run/hosts"},
			{Kind: KindTmpfs, Target: "/tmp", Size: 1 << 20, Inodes: 10, Mode: 0o1777, Write: true},
		}
		if err := buildRoot(root, entries, func(b Blob) ([]byte, error) { return []byte("blob " + b), nil }, nil); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{"/etc/hosts": "ours", "/run/hosts": "ours", "/run/bundle": "blob certificate bundle"} {
			if got, err := os.ReadFile(root + path); err != nil || string(got) != want {
				t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
			}
		}
		if err := os.WriteFile(root+"/etc/hosts", nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("write over an alias: got %v, want %v", err, unix.EROFS)
		}
		if got, err := os.Readlink(root + "/bin"); got != "usr/bin" {
			t.Errorf("symlink: got %q, %v", got, err)
		}
		var failed error
		for i := 0; failed == nil && i < 20; i++ {
			failed = os.WriteFile(fmt.Sprintf("%s/tmp/%d", root, i), nil, 0o644)
		}
		if !errors.Is(failed, unix.ENOSPC) {
			t.Errorf("more files than inodes: got %v, want %v", failed, unix.ENOSPC)
		}
		names, err := os.ReadDir(root)
		for _, n := range names {
			if strings.HasPrefix(n.Name(), ".cover") {
				t.Errorf("got %q left in the root", n.Name())
			}
		}
		if err := errors.Join(err, buildRoot(newRoot(t), []Entry{{Target: "/x"}}, nil, nil)); err == nil {
			t.Error("an entry without a kind: got built, want a refusal")
		}
	})
}
