package escape

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// enter makes the world that this process was started into: addresses on the
// loopback, files about names, a /proc and a /dev/shm of its own. All of it
// ends with the process.
func enter(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := ground(dir); err != nil {
		return err
	}
	if err := unix.Mount("shm", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size=64m"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	if err := unix.Sethostname([]byte("world")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	for name, text := range map[string]string{
		"resolv.conf":   "nameserver " + resolver + "\noptions timeout:2 attempts:1\n",
		"hosts":         "127.0.0.1 localhost world\n::1 localhost\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
	} {
		if err := cover("/etc/"+name, filepath.Join(dir, name), text); err != nil {
			return err
		}
	}
	return addresses()
}

// cover lays a file of ours over one of the machine's, which stays as it is.
func cover(path, ours, text string) error {
	if err := os.WriteFile(ours, []byte(text), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(ours, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover %q: %w", path, err)
	}
	return nil
}

// addresses raises the loopback and gives it every address of the world.
func addresses() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		return fmt.Errorf("raise lo: %w", err)
	}
	for i, a := range worldAddresses() {
		if a.IsLoopback() {
			continue
		}
		set := address4
		if a.Is6() {
			set = address6
		}
		if err := set(fd, i, a); err != nil {
			return fmt.Errorf("add the address %v: %w", a, err)
		}
	}
	return usable()
}

// usable waits until no address of IPv6 is tentative: the kernel looks for
// duplicates later, even on the loopback.
func usable() error {
	const tentative = 0x40
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile("/proc/net/if_inet6")
		if errors.Is(err, os.ErrNotExist) {
			return nil // a kernel without IPv6
		}
		if err != nil {
			return err
		}
		waiting := false
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			flags, err := strconv.ParseUint(f[4], 16, 32)
			waiting = waiting || err != nil || flags&tentative != 0
		}
		if !waiting {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("addresses of IPv6 stay tentative")
		}
	}
}

func address4(fd, i int, a netip.Addr) error {
	// An alias of the interface holds one more address.
	r, err := unix.NewIfreq(fmt.Sprintf("lo:%d", i))
	if err != nil {
		return err
	}
	if err := r.SetInet4Addr(a.AsSlice()); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, r); err != nil {
		return err
	}
	if err := r.SetInet4Addr([]byte{255, 255, 255, 255}); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFNETMASK, r)
}

func address6(_, _ int, a netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // a kernel without IPv6
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// struct in6_ifreq of linux/ipv6.h.
	r := struct {
		addr   [16]byte
		prefix uint32
		index  int32
	}{a.As16(), 128, 1}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&r)))
	if errno != 0 && errno != unix.EEXIST {
		return errno
	}
	return nil
}
