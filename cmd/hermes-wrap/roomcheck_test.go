package main

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCheckRoom(t *testing.T) {
	few := func(resource int, n uint64) func(int) (uint64, error) {
		return func(r int) (uint64, error) {
			if r == resource {
				return n, nil
			}
			return unix.RLIM_INFINITY, nil
		}
	}
	for _, c := range []struct {
		uid, resource int
		n             uint64
		want, hint    string
	}{
		{1000, -1, 0, "", ""},
		{1000, unix.RLIMIT_NOFILE, 64, "preflight: this session may have 64 open files, and a launch needs 96", "ulimit -n 96"},
		{1000, unix.RLIMIT_NOFILE, 1024, "", ""},
		{1000, unix.RLIMIT_NPROC, 20, "preflight: this session may have 20 processes and threads, and a launch needs 64", "ulimit -u 64"},
		{0, unix.RLIMIT_NPROC, 20, "", ""},
		{1000, unix.RLIMIT_AS, 1 << 30, "preflight: this session may have 1073741824 bytes of address space, and a launch needs 3221225472", "ulimit -v 3145728"},
		{1000, unix.RLIMIT_FSIZE, 0, "preflight: this session may have 0 bytes of a file", "ulimit -f"},
	} {
		err := checkRoom(c.uid, few(c.resource, c.n))
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(hintOf(err), c.hint)) {
			t.Errorf("%+v: got %v with hint %q", c, err, hintOf(err))
		}
	}
	if err := checkRoom(1000, func(int) (uint64, error) { return 0, errors.New("not known") }); err != nil {
		t.Errorf("got %v, want nothing for limits that cannot be asked", err)
	}
}
