package state

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// handle is an O_PATH descriptor: an object that can be looked at and whose mode
// and attributes can be changed without opening it, whatever its name becomes.
type handle int

func hold(dir int, name string) (handle, error) {
	fd, err := openBelow(dir, name, unix.O_PATH, 0)
	return handle(fd), err
}

// path names the object itself.
func (h handle) path() string { return "/proc/self/fd/" + strconv.Itoa(int(h)) }

func (h handle) close() { _ = unix.Close(int(h)) }
