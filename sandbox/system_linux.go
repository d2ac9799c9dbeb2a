package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// standardNodes are the device nodes that every program may expect. They are
// bound from the host: a user namespace cannot make any.
var standardNodes = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// landlockProbe is a file that the agent could read but for Landlock.
const landlockProbe = "/run/hermes-wrap/no-landlock-rule"

// Inside tells whether this process is in a sandbox of hermes-wrap already. A
// second one cannot be made there: the first refuses namespaces.
func Inside() bool {
	_, err := os.Lstat(landlockProbe)
	return err == nil
}

// devLinks are the symlinks of /dev.
var devLinks = [][2]string{
	{"/proc/self/fd", "/dev/fd"},
	{"/proc/self/fd/0", "/dev/stdin"},
	{"/proc/self/fd/1", "/dev/stdout"},
	{"/proc/self/fd/2", "/dev/stderr"},
	{"pts/ptmx", "/dev/ptmx"},
}

// systemEntries are the file systems that are the sandbox's own instances,
// with what is covered in them.
func systemEntries(p Plan, inodes int, hostRoot bool) []Entry {
	const made = "the sandbox's own"
	out := []Entry{
		{Kind: KindProc, Target: "/proc", Rule: made},
		{Kind: KindDev, Target: "/dev", Write: true, Rule: made},
	}
	for _, l := range devLinks {
		out = append(out, Entry{Kind: KindSymlink, Target: l[1], Data: l[0], Rule: made})
	}
	for _, node := range append(append([]string{}, standardNodes...), p.Devices...) {
		out = append(out, Entry{Kind: KindNode, Target: node, Source: node, Rule: made})
	}
	out = append(out,
		Entry{Kind: KindPts, Target: "/dev/pts", Rule: made},
		Entry{Kind: KindTmpfs, Target: "/dev/shm", Size: p.ShmSize, Inodes: inodes, Mode: 0o1777, Write: true, Rule: "filesystem.shm_size"},
		Entry{Kind: KindMqueue, Target: "/dev/mqueue", Write: true, Rule: made},
		Entry{Kind: KindSeal, Target: "/dev", Rule: made},
	)
	sealed := !p.UserNS || hostRoot
	if sealed {
		// Otherwise programs that make user namespaces write their own id maps.
		// Host user 0 must not: the mode of an entry is the same on the host.
		out = append(out, Entry{Kind: KindSeal, Target: "/proc", Rule: made})
	}
	for _, path := range maskedPaths(hostRoot) {
		if st, err := os.Lstat(path); err == nil {
			out = append(out, Entry{Kind: KindMask, Target: path, Dir: st.IsDir(), Rule: made})
		}
	}
	for _, path := range readonlyPaths(hostRoot, sealed) {
		if st, err := os.Lstat(path); err == nil {
			out = append(out, Entry{Kind: KindProtect, Target: path, Dir: st.IsDir(), Rule: made})
		}
	}
	return out
}

// maskedPaths are the entries of /proc that tell of the host. What only host
// user 0 can open is covered when we are that user; each cover costs a mount.
func maskedPaths(hostRoot bool) []string {
	paths := []string{"/proc/keys", "/proc/key-users", "/proc/kallsyms", "/proc/modules", "/proc/config.gz"}
	if !hostRoot {
		return paths
	}
	return append(paths, "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/kmsg",
		"/proc/slabinfo", "/proc/vmallocinfo", "/proc/pagetypeinfo", "/proc/sysrq-trigger")
}

// readonlyPaths are what the owner could write: host user 0 owns all of it, and
// an ordinary user the settings of the sandbox's own namespaces. In /proc that is
// not sealed everybody could have the kernel watch the whole machine's pressure.
func readonlyPaths(hostRoot, sealed bool) []string {
	switch {
	case hostRoot:
		return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"}
	case sealed:
		return []string{"/proc/sys"}
	}
	return []string{"/proc/sys", "/proc/pressure"}
}

// instance mounts a new instance of a kernel file system.
func (b *rootBuilder) instance(e Entry, fstype, data string, flags uintptr) error {
	dst, err := b.mountPoint(e.Target, true)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	if err := unix.Mount(fstype, procFd(dst), fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", fstype, err)
	}
	top, err := b.open(e.Target, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	return b.remember(top)
}

func (b *rootBuilder) system(e Entry) error {
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	switch e.Kind {
	case KindProc:
		return b.instance(e, "proc", "", plain)
	case KindDev:
		return b.instance(e, "tmpfs", "mode=0755,size=64k,nr_inodes=64", unix.MS_NOSUID|unix.MS_NOEXEC)
	case KindPts:
		return b.instance(e, "devpts", "newinstance,ptmxmode=0666,mode=0620", unix.MS_NOSUID|unix.MS_NOEXEC)
	case KindMqueue:
		return b.instance(e, "mqueue", "", plain)
	case KindSeal:
		return b.seal(e)
	}
	return b.node(e)
}

// seal makes the top mount read-only, not what is mounted below it.
func (b *rootBuilder) seal(e Entry) error {
	fd, err := b.open(e.Target, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// node binds one device node, after a look at what it is.
func (b *rootBuilder) node(e Entry) error {
	src, err := unix.Openat2(unix.AT_FDCWD, e.Source, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return fmt.Errorf("open device: %w", err)
	}
	defer unix.Close(src)
	var st unix.Stat_t
	if err := unix.Fstat(src, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return fmt.Errorf("%q is no character device", e.Source)
	}
	if want, ok := standardNumbers[filepath.Base(e.Source)]; ok && filepath.Dir(e.Source) == "/dev" && st.Rdev != want {
		return fmt.Errorf("%q is not the device of that name", e.Source)
	}
	dst, err := b.mountPoint(e.Target, false)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	// Read-only does not concern the device, only its inode: host user 0 could
	// change the mode of the host's own node.
	return attach(src, dst, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY)
}

// standardNumbers are the device numbers of Linux (devices.txt): a "null" that
// is something else would be a door (CVE-2025-31133).
var standardNumbers = map[string]uint64{
	"null": unix.Mkdev(1, 3), "zero": unix.Mkdev(1, 5), "full": unix.Mkdev(1, 7),
	"random": unix.Mkdev(1, 8), "urandom": unix.Mkdev(1, 9), "tty": unix.Mkdev(5, 0),
}
