package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// isPidOne tells whether we are the first process of a container: then whatever
// loses its parent there comes to us, and stays a zombie until somebody waits.
func isPidOne() bool { return os.Getpid() == 1 }

// pidOne runs this program again as a child and is what a container's first
// process has to be: it passes signals on, waits for every process that comes to
// it, and ends as the child does. The launcher itself cannot, since it would take
// away the ends of its own children.
func pidOne() int {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	cmd := exec.Cmd{
		Path: "/proc/self/exe", Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: foreground(),
	}
	if err := sandbox.Attentive(cmd.Start); err != nil {
		fmt.Fprintf(os.Stderr, "hermes-wrap: error: start below the container's first process: %v\n", err)
		return exitFailed
	}
	child := cmd.Process.Pid
	for s := range signals {
		sig, ok := s.(unix.Signal)
		switch {
		case !ok || sig == unix.SIGURG || sig == unix.SIGPIPE:
		case sig != unix.SIGCHLD:
			_ = unix.Kill(child, sig)
		default:
			if ws, ended := reapAll(child); ended {
				return exitCode(ws)
			}
		}
	}
	return exitFailed
}

// foreground gives the child the terminal, if we have one, so that the kernel sends
// it what is typed, and nobody sends it twice.
func foreground() *syscall.SysProcAttr {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() {
		return nil
	}
	return &syscall.SysProcAttr{Foreground: true, Ctty: 0}
}

// reapAll waits for everything that has ended. A child that stopped goes on: there
// is no shell here that would continue it.
func reapAll(child int) (ws unix.WaitStatus, ended bool) {
	for {
		var s unix.WaitStatus
		pid, err := unix.Wait4(-1, &s, unix.WNOHANG|unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid <= 0:
			return ws, ended
		case s.Stopped():
			if pid == child {
				_ = unix.Kill(pid, unix.SIGCONT)
			}
		case pid == child:
			ws, ended = s, true
		}
	}
}
