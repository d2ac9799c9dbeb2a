package kernels

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
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
)

// kernel is one that prove/kernels/build has made ready.
type kernel struct {
	Suite   string
	dir     string
	release string // as uname says
}

// machine is one guest to start: emulated whole, without a network and without
// the host's processor, of which nothing but time is used.
type machine struct {
	kernel kernel
	root   string // root.img, never written to
	in     string // the image with what is under test
	dir    string // of this boot: initramfs, console, results
	tree   string // what in is made of
	// minimal is a static shell, for a guest without a root file system.
	minimal string
	append  string // more for the kernel's command line
	guest   string // the first program
}

// drivers are the modules that a guest needs before it sees its disks.
var drivers = []string{"virtio_pci", "virtio_blk"}

// outSize is the room for results.
const outSize = 8 << 20

// boot runs the machine to its end and gives the report.
func (m machine) boot(ctx context.Context, limit time.Duration) (protocol.Report, error) {
	var rep protocol.Report
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return rep, err
	}
	initrd, err := m.initramfs()
	if err != nil {
		return rep, err
	}
	if err := os.WriteFile(m.file("initrd"), initrd, 0o644); err != nil {
		return rep, err
	}
	if err := errors.Join(os.WriteFile(m.file("out"), nil, 0o644), os.Truncate(m.file("out"), outSize)); err != nil {
		return rep, err
	}
	if err := m.emulate(ctx, limit); err != nil {
		return rep, err
	}
	return readReport(m.file("out"))
}

func (m machine) file(name string) string { return filepath.Join(m.dir, name) }

func (m machine) emulate(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", m.args()...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	console, _ := os.ReadFile(m.file("console"))
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("not done after %v; the console ends with:\n%s", limit, tail(console))
	case err != nil:
		return fmt.Errorf("qemu: %w: %s", err, errs.String())
	case !bytes.Contains(console, []byte(protocol.End)):
		return fmt.Errorf("the guest went away; the console ends with:\n%s", tail(console))
	}
	return nil
}

func (m machine) args() []string {
	args := []string{
		// The guest's clock counts its instructions, so that a busy machine makes
		// the guest slow but not late: no time limit in it knows of the machine.
		"-accel", "tcg,thread=single", "-icount", "shift=2", "-machine", "q35", "-cpu", "max,la57=off", "-smp", "1", "-m", "1024",
		"-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-no-reboot",
		"-serial", "file:" + m.file("console"),
		"-kernel", filepath.Join(m.kernel.dir, "vmlinuz"), "-initrd", m.file("initrd"),
		// Defences against the processor's flaws cost time and defend nothing here.
		"-append", "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on " + m.append,
	}
	for i, d := range []struct{ file, how string }{
		{m.root, "snapshot=on"}, {filepath.Join(m.kernel.dir, "modules.img"), "snapshot=on"}, {m.in, "snapshot=on"}, {m.file("out"), "cache=unsafe"},
	} {
		id := "disk" + strconv.Itoa(i)
		args = append(args, "-drive", "if=none,format=raw,id="+id+",file="+d.file+","+d.how, "-device", "virtio-blk-pci,drive="+id)
	}
	return args
}

// initramfs holds the drivers of the disks, and the guest program as the first
// process.
func (m machine) initramfs() ([]byte, error) {
	guest, err := os.ReadFile(m.guest)
	if err != nil {
		return nil, err
	}
	names, err := m.kernel.load(drivers)
	if err != nil {
		return nil, err
	}
	var a archive
	for _, d := range []string{"proc", "dev", "new"} {
		a.dir(d)
	}
	a.file("init", 0o755, guest)
	var order strings.Builder
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(m.kernel.dir, "modules", name))
		if err != nil {
			return nil, err
		}
		a.file(filepath.Base(name), 0o644, b)
		fmt.Fprintln(&order, filepath.Base(name))
	}
	a.file("order", 0o644, []byte(order.String()))
	if m.minimal != "" {
		if err := m.furnish(&a); err != nil {
			return nil, err
		}
	}
	return a.bytes(), nil
}

// applets are the commands that a guest without a root file system has.
var applets = []string{"sh", "cat", "cp", "sleep", "sysctl", "mount", "find", "grep", "ps", "id", "true"}

// furnish puts all that a guest without a root file system has in its initramfs:
// no service manager, no libraries, no /etc.
func (m machine) furnish(a *archive) error {
	for _, d := range []string{"bin", "in", "usr", "usr/sbin", "tmp", "var", "var/tmp", "root", "home", "sys", "run", "mnt"} {
		a.dir(d)
	}
	shell, err := os.ReadFile(m.minimal)
	if err != nil {
		return err
	}
	a.file("bin/busybox", 0o755, shell)
	for _, name := range applets {
		a.link("bin/"+name, "busybox")
	}
	a.link("usr/sbin/ip", "/bin/busybox")
	files, err := os.ReadDir(m.tree)
	if err != nil {
		return err
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(m.tree, f.Name()))
		if err != nil {
			return err
		}
		mode := uint32(0o644)
		if !strings.Contains(f.Name(), ".") {
			mode = 0o755
		}
		a.file("in/"+f.Name(), mode, b)
	}
	return nil
}

// load gives the files of the modules and what they rest on, in the order in
// which they go in. What is not there is built in.
func (k kernel) load(modules []string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(k.dir, "modules", "modules.dep"))
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		if file, rest, ok := strings.Cut(line, ":"); ok {
			needs[file] = strings.Fields(rest)
		}
	}
	var order []string
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			order = append(order, name)
		}
	}
	for _, m := range modules {
		for file, rest := range needs {
			if filepath.Base(file) != m+".ko" {
				continue
			}
			// depmod(8) lists the nearest first.
			for i := len(rest) - 1; i >= 0; i-- {
				add(rest[i])
			}
			add(file)
		}
	}
	return order, nil
}

func readReport(file string) (rep protocol.Report, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return rep, err
	}
	const head = 21
	n, err := strconv.Atoi(strings.TrimLeft(string(b[:head-1]), "0"))
	if err != nil || n > len(b)-head {
		return rep, fmt.Errorf("the guest's report is no report: %q", b[:head])
	}
	if err := json.Unmarshal(b[head:head+n], &rep); err != nil {
		return rep, fmt.Errorf("read the guest's report: %w", err)
	}
	if rep.Lost != "" {
		return rep, fmt.Errorf("the guest gave up: %s", rep.Lost)
	}
	return rep, nil
}

func tail(b []byte) string {
	const most = 2000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return string(b)
}
