// Package wire is what the test and its launcher say to each other.
package wire

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Request is one request; its Id is repeated in the answer, and names the task
// that it starts.
type Request struct {
	Id       int
	Op       string
	Task     int
	Argv     []string
	Long     int // further arguments of 32 KiB
	Env      []string
	Cwd      string
	Terminal bool
	Signal   int
	Group    bool
	Path     string
}

// Answer is one answer.
type Answer struct {
	Id     int
	Ready  bool // the sandbox runs, or a socket listens
	Over   bool // the run ended: Status is the Result's
	Pid    int
	Status int
	Out    string
	Error  string
	Errno  int
}

// SetError notes an error and the kernel's number in it.
func (a *Answer) SetError(err error) {
	if err == nil {
		return
	}
	a.Error = err.Error()
	if no := unix.Errno(0); errors.As(err, &no) {
		a.Errno = int(no)
	}
}
