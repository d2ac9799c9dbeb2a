package escape

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// system is what nothing inside may change about the system, by name.
type system map[string]string

// hostFiles are files of the system whose change would be noticed late.
var hostFiles = strings.Fields(`/etc /etc/passwd /etc/group /etc/shadow /etc/sudoers /etc/sudoers.d /etc/ld.so.cache /etc/ld.so.preload
 /etc/ld.so.conf.d /etc/profile /etc/profile.d /etc/crontab /etc/cron.d /etc/systemd/system /etc/ssh /root /root/.ssh /root/.bashrc /usr/bin
 /usr/bin/env /bin/sh /usr/lib /usr/local/bin /usr/sbin /var/spool/cron /opt /home /boot /lib/modules /dev /dev/null /dev/zero /dev/tty
 /dev/kmsg`) //nolint:gochecknoglobals // a constant

// hostTexts are files of /proc and /sys.
var hostTexts = strings.Fields(`/proc/self/mountinfo /proc/net/route /proc/net/ipv6_route /proc/net/if_inet6 /proc/net/tcp /proc/net/netlink
 /proc/sys/kernel/hostname /proc/sys/kernel/domainname /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hotplug
 /proc/sys/fs/binfmt_misc/status /proc/sys/kernel/randomize_va_space /proc/sys/kernel/yama/ptrace_scope /proc/sys/vm/overcommit_memory
 /proc/sys/net/ipv4/ip_forward /proc/sys/user/max_user_namespaces /proc/modules /proc/sysvipc/sem /proc/sysvipc/msg /sys/kernel/uevent_helper`) //nolint:gochecknoglobals // a constant

// observe looks at the system.
func observe(bin string) system {
	m := system{}
	for _, path := range append([]string{bin}, hostFiles...) {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			continue
		}
		m[path] = fmt.Sprint(st.Ino, st.Mode, st.Uid, st.Gid)
		// Others may work in a directory meanwhile, and who uses a terminal
		// changes the time of its device.
		if info.Mode().IsRegular() {
			m[path] += fmt.Sprint(st.Size, st.Mtim)
		}
		if path == bin {
			m[path] += fmt.Sprint(st.Ctim)
		}
	}
	for _, path := range hostTexts {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if path == "/proc/net/tcp" || path == "/proc/net/netlink" || path == "/proc/modules" {
			// Only how much listens, not who is connected.
			text = []byte(strconv.Itoa(strings.Count(string(text), " 0A ")))
			if path == "/proc/modules" {
				continue
			}
		}
		if path == "/proc/net/ipv6_route" {
			text = []byte(routes(string(text)))
		}
		m[path] = string(text)
	}
	return m
}

// routes drops from /proc/net/ipv6_route what changes when a route is used: its
// counters, and what the kernel remembers for a while (RTF_CACHE).
func routes(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 10 {
			continue
		}
		if flags, err := strconv.ParseUint(f[8], 16, 32); err != nil || flags&unix.RTF_CACHE == 0 {
			kept = append(kept, strings.Join(slices.Delete(f, 6, 8), " "))
		}
	}
	slices.Sort(kept)
	return strings.Join(kept, "\n")
}

// changed says what is different now.
func (m system) changed(now system) []string {
	var out []string
	for name, was := range m {
		if now[name] != was {
			out = append(out, "the system's "+name+" changed")
		}
	}
	for name := range now {
		if _, ok := m[name]; !ok {
			out = append(out, "the system's "+name+" appeared")
		}
	}
	sort.Strings(out)
	return out
}

// restore takes back what a twin did to the world, where that can be done, and
// tells whether all is as it was.
func (m system) restore(bin string) bool {
	_ = unix.Sethostname([]byte(strings.TrimSpace(m["/proc/sys/kernel/hostname"])))
	_ = unix.Setdomainname([]byte(strings.TrimSpace(m["/proc/sys/kernel/domainname"])))
	for path, was := range m {
		if !strings.HasPrefix(path, "/proc/sys/") {
			continue
		}
		if now, err := os.ReadFile(path); err == nil && string(now) != was {
			_ = os.WriteFile(path, []byte(was), 0) // #nosec: a file of the kernel
		}
	}
	text, _ := os.ReadFile("/proc/self/mountinfo")
	for _, path := range added(m["/proc/self/mountinfo"], string(text)) {
		_ = unix.Unmount(path, unix.MNT_DETACH)
	}
	return len(m.changed(observe(bin))) == 0
}

// added gives the places of mounts that were not there before, the last first. A
// mount whose options are others now is none of them: to take "/" away because
// somebody changed the options of its file system would be the end of the world.
func added(before, now string) []string {
	had := map[string]bool{}
	for line := range strings.Lines(before) {
		id, _, _ := strings.Cut(line, " ")
		had[id] = true
	}
	var out []string
	for line := range strings.Lines(now) {
		if f := strings.Fields(line); len(f) > 4 && !had[f[0]] {
			out = append(out, f[4])
		}
	}
	slices.Reverse(out)
	return out
}

// processes gives all that run in this world but for those that are ours. What
// has ended is waited for: this is the first process of its namespace.
func processes(ours ...int) []int {
	entries, _ := os.ReadDir("/proc")
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		known := false
		for _, o := range ours {
			known = known || pid == o
		}
		if known {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		if end := bytes.LastIndexByte(stat, ')'); end >= 0 && bytes.HasPrefix(stat[end:], []byte(") Z")) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			continue
		}
		out = append(out, pid)
	}
	return out
}

// leftover gives the names of processes that outlived a run, and ends them.
// What is about to end has a second.
func leftover(ours ...int) []string {
	left := processes(ours...)
	for deadline := time.Now().Add(time.Second); len(left) > 0 && time.Now().Before(deadline); left = processes(ours...) {
		time.Sleep(5 * time.Millisecond)
	}
	var out []string
	for _, pid := range left {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		out = append(out, "a process is left: "+strings.TrimSpace(string(comm)))
	}
	for deadline := time.Now().Add(5 * time.Second); len(left) > 0 && time.Now().Before(deadline); left = processes(ours...) {
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
	return out
}

// plantKey gives this thread, and what it starts, a session keyring with a
// secret that whoever has the keyring may read.
func plantKey(token string) error {
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); errors.Is(err, unix.ENOSYS) {
		return nil // a kernel without keyrings
	} else if err != nil {
		return fmt.Errorf("join a session keyring: %w", err)
	}
	id, err := unix.AddKey("user", "canary", []byte(token), unix.KEY_SPEC_SESSION_KEYRING)
	if err != nil {
		return fmt.Errorf("add a key: %w", err)
	}
	if err := unix.KeyctlSetperm(id, 0x3f3f3f3f); err != nil {
		return fmt.Errorf("open a key: %w", err)
	}
	return nil
}
