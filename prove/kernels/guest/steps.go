package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
)

const (
	userID = 1000
	// most is what of one stream is reported.
	most = 256 << 10
)

func readJob() (job protocol.Job, err error) {
	b, err := os.ReadFile("/in/job.json")
	if err != nil {
		return job, err
	}
	return job, json.Unmarshal(b, &job)
}

// stepsMain carries the job out. It reports also when it could not.
func stepsMain() error {
	job, err := readJob()
	if err != nil {
		return err
	}
	// Whatever is wrong, the machine does not go on for ever.
	fmt.Fprintln(os.Stdout, protocol.Begin)
	rep := protocol.Report{Kernel: release()}
	if !job.Systemd {
		err = furnish(job)
	}
	if err == nil {
		err = steps(job, &rep)
	}
	if err != nil {
		rep.Lost = err.Error()
	}
	rep.Log = kernelLog()
	b, err := json.Marshal(rep)
	if err != nil {
		return err
	}
	if err := writeDisk(b); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, protocol.End)
	return nil
}

// writeDisk puts the report on the last disk, with its length before it.
func writeDisk(b []byte) error {
	f, err := os.OpenFile(protocol.DiskOut, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%020d\n%s", len(b), b)
	return errors.Join(err, f.Sync(), f.Close())
}

func steps(job protocol.Job, rep *protocol.Report) error {
	if err := addresses(); err != nil {
		return err
	}
	var w world
	if err := w.open(); err != nil {
		return err
	}
	for _, s := range job.Setup {
		a := w.run(protocol.Ask{Name: "setup", User: protocol.Root, Script: s, Seconds: 60})
		if a.Exit != 0 {
			return fmt.Errorf("setup %q: exit %d: %s%s", s, a.Exit, a.Stdout, a.Stderr)
		}
	}
	if err := warm(); err != nil {
		return err
	}
	rep.Uptime = uptime()
	for _, s := range job.Steps {
		fmt.Fprintf(os.Stdout, "%s %s (%s)\n", protocol.Step, s.Name, s.User)
		rep.Answers = append(rep.Answers, w.run(s))
		reap()
	}
	return nil
}

// warm reads what doctor and launches will read from disks: modules, what loads
// them, and the binary. While all of a guest waits for a disk, its clock goes on
// with the machine's: on a busy machine, loading a module would take longer than
// doctor waits.
func warm() error {
	for _, pattern := range []string{
		"/lib/modules/*/modules.*", "/lib/modules/*/kernel/fs/overlayfs/*", "/lib/modules/*/kernel/net/netfilter/*",
		"/lib/modules/*/kernel/net/ipv*/netfilter/*", "/lib/modules/*/kernel/lib/*", "/usr/bin/kmod",
		"/usr/lib/*/libkmod*", "/usr/lib/*/libzstd*", "/usr/lib/*/liblzma*", "/usr/lib/*/libcrypto*", "/usr/lib/*/libc.so*", "/in/hermes-wrap",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, file := range files {
			if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
				continue
			}
			if _, err := os.ReadFile(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// reap is what a first process owes to orphans. Nothing of ours that is waited
// for runs between two steps.
func reap() {
	if os.Getpid() != 1 {
		return
	}
	for {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}

func (w *world) run(s protocol.Ask) protocol.Answer {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.Seconds)*time.Second)
	defer cancel()
	who := accountOf(s.User)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", s.Script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(who.id), Gid: uint32(who.id)}}
	cmd.Dir = filepath.Join(who.home, "work")
	cmd.Env = append(w.variables(who),
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME="+who.home, "USER="+who.name, "LOGNAME="+who.name, "LANG=C.UTF-8", "TERM=dumb",
		"SHELL=/bin/sh", "WRAP=/in/hermes-wrap")
	if s.User == protocol.User {
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR=/run/user/"+strconv.Itoa(userID))
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	// A whole tree is left behind by what is late; all of it goes.
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	a := protocol.Answer{Name: s.Name, User: s.User, Exit: -1}
	began := time.Now()
	err := start(cmd, s.User)
	if err == nil {
		err = cmd.Wait()
	}
	a.Took = time.Since(began).Seconds()
	if cmd.ProcessState != nil {
		a.Exit = cmd.ProcessState.ExitCode()
	} else if err != nil {
		errs.WriteString(err.Error())
	}
	a.Late = ctx.Err() != nil
	a.Stdout, a.Stderr = clip(out.Bytes()), clip(errs.Bytes())
	return a
}

// start moves the guest itself into the user's group for the fork: a child
// begins where its parent is.
func start(cmd *exec.Cmd, user string) error {
	if user != protocol.User || !exists(protocol.UserGroup) {
		return cmd.Start()
	}
	self := []byte(strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(protocol.UserGroup, self, 0); err != nil {
		return err
	}
	err := cmd.Start()
	return errors.Join(err, os.WriteFile("/sys/fs/cgroup/cgroup.procs", self, 0))
}

func clip(b []byte) string {
	if len(b) > most {
		b = append(b[:most:most], "\n[cut]"...)
	}
	return strings.ToValidUTF8(string(b), "?")
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func uptime() float64 {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	s, _ := strconv.ParseFloat(first, 64)
	return s
}

func kernelLog() string {
	b := make([]byte, 64<<10)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, b)
	if err != nil {
		return err.Error()
	}
	return strings.ToValidUTF8(string(b[:n]), "?")
}
