package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// RunDir is the directory of one run on the host: libcontainer's state and the
// mount point of the private root. It is gone after the run; what a SIGKILL
// leaves is swept by the proxy, else by the next launch.
type RunDir struct {
	Id   string
	Path string
	lock *os.File
}

// NewRunDir names a directory below base, which it creates with mode 0700. A
// base that belongs to somebody else is refused. Make makes the directory: late,
// since until the proxy runs nobody but a later launch sweeps it.
func NewRunDir(base string) (*RunDir, error) {
	if err := ownDirectory(base); err != nil {
		return nil, err
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, err
	}
	id := hex.EncodeToString(b[:])
	return &RunDir{Id: id, Path: filepath.Join(base, id)}, nil
}

// Make makes the directory. Until it is locked another launch may take it for
// what a killed run left, and sweep it: then it is made again.
func (d *RunDir) Make() (err error) {
	for range 200 {
		if d.lock, err = d.lockNew(); err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) && !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("make run directory %q: %w", d.Path, err)
}

// lockNew makes and locks it. The lock lives as long as the launcher: a
// directory without a holder is what a killed run left.
func (d *RunDir) lockNew() (*os.File, error) {
	if err := os.Mkdir(d.Path, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.Open(d.Path)
	if err != nil {
		_ = os.Remove(d.Path)
		return nil, err
	}
	if err = unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB); err == nil {
		// It fails in a directory that was removed between the two steps.
		if err = os.Mkdir(d.root(), 0o700); err == nil {
			return lock, nil
		}
		_ = os.Remove(d.Path) // it is ours, and empty
	}
	lock.Close()
	return nil, err
}

func (d *RunDir) root() string  { return filepath.Join(d.Path, "root") }
func (d *RunDir) state() string { return filepath.Join(d.Path, "state") }

// Remove deletes the directory, if it was made.
func (d *RunDir) Remove() error {
	if d.lock == nil {
		return nil
	}
	defer d.lock.Close()
	return os.RemoveAll(d.Path)
}

// ownDirectory makes a private directory, or checks that it is one.
func ownDirectory(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return &StepError{
			Step: StepRuntime, Err: fmt.Errorf("refuse directory %q: it must be a directory of yours with mode 0700", path),
			Hint: "see who made it, and move it away; the next launch makes it anew",
		}
	}
	return nil
}

// RuntimeBase is where run directories lie: $XDG_RUNTIME_DIR/hermes-wrap, or a
// private directory on /dev/shm or in /tmp where there is no runtime directory.
func RuntimeBase(getenv func(string) string) string {
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil && int(st.Uid) == os.Geteuid() && unix.Access(dir, unix.W_OK) == nil {
			return filepath.Join(dir, "hermes-wrap")
		}
	}
	if unix.Access("/dev/shm", unix.W_OK) == nil {
		return runtimeShm()
	}
	return filepath.Join("/tmp", filepath.Base(runtimeShm()))
}

// runtimeShm is where run directories lie on /dev/shm.
func runtimeShm() string { return fmt.Sprintf("/dev/shm/hermes-wrap-%d", os.Geteuid()) }

// SweepRunDirs removes what killed runs left below base.
func SweepRunDirs(base string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		SweepRunDir(filepath.Join(base, e.Name()))
	}
}

// SweepRunDir removes one run directory if its launcher is gone.
func SweepRunDir(path string) {
	if path == "" {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	// Entry by entry: RemoveAll reads the directory above, which the proxy may not.
	entries, err := f.ReadDir(-1)
	if err != nil {
		return
	}
	for _, e := range entries {
		_ = removeTree(filepath.Join(path, e.Name()))
	}
	_ = os.Remove(path)
}
