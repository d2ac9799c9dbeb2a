package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// probe tries to reach what lies outside: with a sandbox all of it has to fail,
// without one it has to work. Each attempt is a line, "ESCAPED name" or "held
// name: why"; the last line is DONE.
func probe(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: probe VICTIM OUTSIDE HOME")
	}
	victim, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	outside, home := args[1], args[2]
	for _, t := range []struct {
		name string
		try  func() error
	}{
		{"read a key", func() error { return readCanary(filepath.Join(home, ".ssh/id_ed25519")) }},
		{"read a file", func() error { return readCanary(filepath.Join(outside, "secret")) }},
		{"make a file", func() error { return os.WriteFile(filepath.Join(outside, "made"), nil, 0o600) }},
		{"signal a process", func() error { return signalOther(victim) }},
		{"read an environment", func() error { return readCanary(fmt.Sprintf("/proc/%d/environ", victim)) }},
		{"connect to loopback", func() error { return hear("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(loopbackPort))) }},
		{"connect to an abstract socket", func() error { return hear("unix", abstractName) }},
		{"connect to a local socket", func() error { return hear("unix", filepath.Join(outside, "socket")) }},
		{"connect to a denied address", func() error { return hear("tcp", "203.0.113.11:80") }},
		{"connect to a denied port", func() error { return hear("tcp", "203.0.113.10:81") }},
		{"make a user namespace", makeUserns},
		{"set up io_uring", ioUring},
		{"load a program into the kernel", bpfMap},
		{"mount", func() error { return unix.Mount("none", "/mnt", "tmpfs", 0, "") }},
	} {
		if err := t.try(); err != nil {
			fmt.Fprintf(os.Stdout, "held %s: %v\n", t.name, err)
		} else {
			fmt.Fprintf(os.Stdout, "ESCAPED %s\n", t.name)
		}
	}
	fmt.Fprintln(os.Stdout, "DONE")
	return nil
}

func readCanary(file string) error {
	b, err := os.ReadFile(file)
	if err == nil && !bytes.Contains(b, []byte("CANARY-")) {
		err = errors.New("another file")
	}
	return err
}

// signalOther sends a signal that a process takes no notice of.
func signalOther(pid int) error {
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		return err
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(b) != "sleep\n" {
		return errors.New("another process")
	}
	return nil
}

// patience is for servers that speak at once; a denied client is kept for longer.
const patience = 1500 * time.Millisecond

// hear connects, and succeeds when it hears the canary.
func hear(network, address string) error {
	c, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(c)
	if bytes.Contains(b, []byte("CANARY-")) {
		return nil
	}
	return errors.Join(errors.New("nothing heard"), err)
}

// makeUserns makes a process that ends at once. Nothing of Go's runs in it.
func makeUserns() error {
	pid, _, no := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if no != 0 {
		return no
	}
	if pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, _ = unix.Wait4(int(pid), nil, 0, nil)
	return nil
}

func ioUring() error {
	var params [120]byte
	fd, _, no := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if no != 0 {
		return no
	}
	return unix.Close(int(fd))
}

func bpfMap() error {
	attr := [72]byte{0: 1, 4: 4, 8: 4, 12: 1} // an array with one entry of four bytes
	fd, _, no := unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if no != 0 {
		return no
	}
	return unix.Close(int(fd))
}
