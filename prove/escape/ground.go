package escape

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// covered are the trees of the system that root's twins may change as they like:
// what they write is gone with the world.
var covered = strings.Fields("/etc /usr /opt /var /boot /srv") //nolint:gochecknoglobals // a constant

// ground lays copies over the parts of the machine that root could damage, for
// twins that do. An ordinary user can damage nothing of that.
func ground(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	layers := filepath.Join(dir, "layers")
	if err := os.Mkdir(layers, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("layers", layers, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount layers: %w", err)
	}
	for _, path := range covered {
		if info, err := os.Lstat(path); err != nil || !info.IsDir() {
			continue
		}
		if err := layOver(layers, path); err != nil {
			return fmt.Errorf("lay over %q: %w", path, err)
		}
	}
	return devices(filepath.Join(layers, "dev"))
}

// layOver lays a writable layer over a tree; without overlays the tree is made
// read-only.
func layOver(layers, path string) error {
	upper, work := filepath.Join(layers, "upper"+strings.ReplaceAll(path, "/", "-")), filepath.Join(layers, "work"+strings.ReplaceAll(path, "/", "-"))
	info, err := os.Stat(path)
	if err == nil {
		err = errors.Join(os.Mkdir(upper, info.Mode().Perm()), os.Mkdir(work, 0o755))
	}
	if err != nil {
		return err
	}
	err = unix.Mount("overlay", path, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", path, upper, work))
	if err == nil {
		return nil
	}
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// devices gives the world a /dev of its own with the same devices: mode, owner and
// times of the machine's /dev/null are the machine's.
func devices(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	err := filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("/dev", path)
		if err != nil || rel == "." {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		to := filepath.Join(dir, rel)
		switch {
		case d.IsDir():
			if err := os.Mkdir(to, info.Mode().Perm()); err != nil || rel != "pts" && rel != "shm" && rel != "mqueue" && rel != "hugepages" {
				return err
			}
			return filepath.SkipDir
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			return errors.Join(err, os.Symlink(target, to))
		case d.Type()&fs.ModeDevice != 0:
			err := unix.Mknod(to, st.Mode, int(st.Rdev))
			return errors.Join(err, os.Chmod(to, info.Mode().Perm()), os.Lchown(to, int(st.Uid), int(st.Gid)))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("copy /dev: %w", err)
	}
	if err := unix.Mount("devpts", filepath.Join(dir, "pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	// The multiplexer of this instance, in the place of the machine's.
	ptmx := filepath.Join(dir, "ptmx")
	_ = os.Remove(ptmx)
	if err := os.Symlink("pts/ptmx", ptmx); err != nil {
		return err
	}
	if err := unix.Mount(dir, "/dev", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	return nil
}
