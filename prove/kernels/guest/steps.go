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
	fmt.Println(protocol.Begin)
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
	fmt.Println(protocol.End)
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

// furnish mounts what a service manager would have mounted.
func furnish(job protocol.Job) error {
	mounts := []mount{
		{"sys", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"tmp", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"pts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
		{"shm", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"sec", "/sys/kernel/security", "securityfs", 0, ""},
	}
	for _, m := range mounts {
		if err := m.do(); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, link); err != nil && !os.IsExist(err) {
			return err
		}
	}
	if err := os.MkdirAll("/run/user/"+strconv.Itoa(userID), 0o700); err != nil {
		return err
	}
	if err := os.Chown("/run/user/"+strconv.Itoa(userID), userID, userID); err != nil {
		return err
	}
	return cgroups(job.Cgroups)
}

func cgroups(layout string) error {
	const root = "/sys/fs/cgroup"
	switch layout {
	case "", "none":
		return nil
	case "v2", "delegated":
		if err := (mount{"cgroup", root, "cgroup2", 0, ""}).do(); err != nil {
			return err
		}
		if layout == "v2" {
			return nil
		}
		return delegate(root)
	case "v1":
		if err := (mount{"cgroup", root, "tmpfs", 0, "mode=755"}).do(); err != nil {
			return err
		}
		for _, c := range []string{"memory", "pids", "cpu"} {
			if err := (mount{"cgroup", filepath.Join(root, c), "cgroup", 0, c}).do(); err != nil {
				return err
			}
		}
		return (mount{"cgroup", filepath.Join(root, "systemd"), "cgroup", 0, "none,name=systemd"}).do()
	}
	return fmt.Errorf("no cgroup layout %q", layout)
}

// delegate gives the user a subtree as systemd's Delegate=yes does: the
// directory, and the files by which processes and controllers move in it.
func delegate(root string) error {
	const controllers = "+memory +pids +cpu"
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte(controllers), 0); err != nil {
		return err
	}
	dir := filepath.Join(root, "user")
	if err := os.MkdirAll(filepath.Join(dir, "session"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controllers), 0); err != nil {
		return err
	}
	for _, d := range []string{dir, filepath.Join(dir, "session")} {
		for _, name := range []string{".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			if err := os.Chown(filepath.Join(d, name), userID, userID); err != nil {
				return err
			}
		}
	}
	return nil
}

// userGroup is where the user's commands run when a subtree is delegated.
const userGroup = "/sys/fs/cgroup/user/session/cgroup.procs"

func steps(job protocol.Job, rep *protocol.Report) error {
	for _, dir := range []string{"/home/tester/work", "/root/work"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/home/tester", "/home/tester/work"} {
		if err := os.Chown(dir, userID, userID); err != nil {
			return err
		}
	}
	for _, s := range job.Setup {
		a := run(protocol.Ask{Name: "setup", User: "root", Script: s, Seconds: 60})
		if a.Exit != 0 {
			return fmt.Errorf("setup %q: exit %d: %s%s", s, a.Exit, a.Stdout, a.Stderr)
		}
	}
	rep.Uptime = uptime()
	for _, s := range job.Steps {
		fmt.Printf("%s %s (%s)\n", protocol.Step, s.Name, s.User)
		rep.Answers = append(rep.Answers, run(s))
	}
	return nil
}

func run(s protocol.Ask) protocol.Answer {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.Seconds)*time.Second)
	defer cancel()
	home, name := "/root", "root"
	attr := &syscall.SysProcAttr{Setsid: true}
	if s.User == "user" {
		home, name = "/home/tester", "tester"
		attr.Credential = &syscall.Credential{Uid: userID, Gid: userID}
	}
	script := s.Script
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	cmd.SysProcAttr = attr
	cmd.Dir = filepath.Join(home, "work")
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + home, "USER=" + name, "LOGNAME=" + name, "LANG=C.UTF-8", "TERM=dumb",
		"SHELL=/bin/sh", "WRAP=/in/hermes-wrap",
	}
	if s.User == "user" {
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
	if user != "user" || !exists(userGroup) {
		return cmd.Start()
	}
	self := []byte(strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(userGroup, self, 0); err != nil {
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
