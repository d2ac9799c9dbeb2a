package state

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// remover removes trees whatever their modes and depth are.
type remover struct {
	top  int
	lift int // directories that were lifted to the top, since they lay too deep
}

// removeTree removes a name and everything below it. Nothing is followed.
func removeTree(dir int, name string) error {
	r := remover{top: dir}
	if err := r.remove(dir, name, 0); err != nil {
		return err
	}
	// What was lifted may lift more.
	for i := 1; i <= r.lift; i++ {
		if err := r.remove(dir, lifted("deep", i), 0); err != nil {
			return err
		}
	}
	return nil
}

func lifted(name string, i int) string { return fmt.Sprintf("%s%s-%d", trashPrefix, name, i) }

func (r *remover) remove(dir int, name string, depth int) error {
	st, there, err := statAt(dir, name)
	if err != nil || !there {
		return err
	}
	if typeOf(st) != Dir {
		return unix.Unlinkat(dir, name, 0)
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	fd, err := openAnyway(dir, name, st, unix.O_RDONLY|unix.O_DIRECTORY, 0o700)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if st.Mode&0o300 != 0o300 {
		if err := unix.Fchmod(fd, 0o700); err != nil {
			return err
		}
	}
	if depth > maxDepth {
		r.lift++
		return unix.Renameat(dir, name, r.top, lifted("deep", r.lift))
	}
	return r.content(fd, dir, name, depth)
}

func (r *remover) content(fd, dir int, name string, depth int) error {
	for {
		names, err := readNames(fd)
		more := errors.Is(err, errTooMany)
		if err != nil && !more {
			return err
		}
		for _, n := range names {
			if err := r.remove(fd, n, depth+1); err != nil {
				return err
			}
		}
		if !more {
			return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
	}
}

// sweep removes what a discard or a snapshot that was killed left in a directory.
func sweep(dir *os.File, prefix string) error {
	names, err := readNames(int(dir.Fd()))
	if err != nil {
		return err
	}
	for _, n := range names {
		if strings.HasPrefix(n, prefix) {
			if err := removeTree(int(dir.Fd()), n); err != nil {
				return fmt.Errorf("remove %q: %w", n, err)
			}
		}
	}
	return nil
}
