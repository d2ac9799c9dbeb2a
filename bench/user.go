package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The environment of the benchmark that root started as somebody else.
const (
	envMemory = "HERMES_BENCH_MEMORY" // a descriptor on which root tells the memory of processes
	envDecide = "HERMES_BENCH_DECIDE" // a file with the output of go test -bench
)

// runAsUser runs the benchmark again as an ordinary user.
func runAsUser(o options, name string) error {
	if name == "" {
		return errors.New("HERMES_TEST_USER is not set: root names the ordinary user to measure as")
	}
	account, err := user.Lookup(name)
	if err != nil {
		return fmt.Errorf("HERMES_TEST_USER: %w", err)
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	dir, err := os.MkdirTemp(account.HomeDir, "hermes-bench-bin-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	self, bin, decide := filepath.Join(dir, "bench"), filepath.Join(dir, "hermes-wrap"), filepath.Join(dir, "decide.txt")
	if err := errors.Join(copyProgram("/proc/self/exe", self), copyProgram(os.Getenv("HERMES_WRAP_BIN"), bin)); err != nil {
		return err
	}
	if o.only == "" || strings.Contains(o.only, "decide") {
		if err := os.WriteFile(decide, benchDecide(), 0o644); err != nil {
			return err
		}
	}
	ask, answer, err := socketPair()
	if err != nil {
		return err
	}
	go tellMemory(answer)
	cmd := exec.Command(self, "--only", o.only, "--calm", o.calm.String(), "--json")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.Dir = &out, os.Stderr, []*os.File{ask}, account.HomeDir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + account.HomeDir, "USER=" + name, "LANG=C.UTF-8",
		"HERMES_WRAP_BIN=" + bin, envMemory + "=3", envDecide + "=" + decide,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return err
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return fmt.Errorf("read what was measured: %w", err)
	}
	return r.deliver(o)
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func socketPair() (child *os.File, parent net.Conn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fds[1]), "memory")
	defer func() { _ = f.Close() }()
	parent, err = net.FileConn(f)
	return os.NewFile(uintptr(fds[0]), "memory"), parent, err
}

// tellMemory answers each process id with its PSS in KiB. The proxy is not
// dumpable, so its own user may not read that.
func tellMemory(c net.Conn) {
	for scan := bufio.NewScanner(c); scan.Scan(); {
		pid, err := strconv.Atoi(scan.Text())
		kib := -1.0
		if err == nil {
			kib = pssOf(pid)
		}
		if _, err := fmt.Fprintf(c, "%.0f\n", kib); err != nil {
			return
		}
	}
}

// pssOf gives the proportional memory of a process in KiB, or -1.
func pssOf(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return -1
	}
	return fieldKiB(string(text), "Pss:")
}

func fieldKiB(text, name string) float64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			var kib float64
			if _, err := fmt.Sscan(rest, &kib); err == nil {
				return kib
			}
		}
	}
	return -1
}
