package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// A cover is a mount on a directory entry of the host. When somebody outside
// replaces or removes that entry (an editor that saves by rename, "git config"),
// the kernel takes the cover away in every mount namespace. Init watches for
// that, stops everything inside at once, and the launcher puts the cover back.

// covers are the entries whose mounts must stay.
func (p Plan) covers() (out []Entry) {
	for _, e := range p.View {
		switch e.Kind {
		case KindProtect, KindMask, KindPin:
			out = append(out, e)
		}
	}
	return out
}

// coverCheck is how often the mount table is read without a notification, in
// milliseconds. Waiting for notifications alone, a cover once stayed away in 800
// replacements; why is not known, and it was not seen since.
const coverCheck = 100

// watchCovers waits for changes of the mount table (POLLPRI on mountinfo, see
// proc(5)) and reports when a cover is gone.
func (p *pidOne) watchCovers() {
	covers := p.s.Plan.covers()
	if len(covers) == 0 {
		return
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		os.Exit(exitFailed) // unwatched covers are not what the plan says
	}
	// The first look comes before the first wait: the host may have replaced
	// an entry since the launch.
	for {
		if bare(f, covers) {
			p.coverAgain(f, covers)
		}
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, coverCheck); err != nil && err != unix.EINTR {
			os.Exit(exitFailed)
		}
	}
}

// coverAgain stops everything inside until the launcher has put back what is
// missing.
func (p *pidOne) coverAgain(f *os.File, covers []Entry) {
	p.freezer.begin()
	defer p.freezer.end()
	for again := true; again; again = bare(f, covers) {
		_ = p.c.send(message{Op: opBare})
		// Whoever puts the covers back is in this pid namespace too: it must
		// not be stopped, so nothing is looked at until it is done.
		<-p.covered
	}
}

func bare(f *os.File, covers []Entry) bool {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return true
	}
	mounted, err := parseMountPoints(f)
	if err != nil {
		return true
	}
	return slices.ContainsFunc(covers, func(e Entry) bool { return !mounted[e.Target] && isThere(e.Target) })
}

// isThere tells whether there is still something to cover.
func isThere(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil
}

// parseMountPoints reads the fifth field of each line of mountinfo.
func parseMountPoints(r io.Reader) (map[string]bool, error) {
	points := map[string]bool{}
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 1<<20)
	for s.Scan() {
		if f := strings.Fields(s.Text()); len(f) > 4 {
			points[unescapeMount(f[4])] = true
		}
	}
	return points, s.Err()
}

// unescapeMount undoes the octal escapes of blanks and backslashes.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Descriptors of the process that puts covers back.
const (
	fdCoverList = 3
	fdCoverSelf = 4
)

// recover runs our own binary in the sandbox's namespaces, with CAP_SYS_ADMIN
// there and nowhere else, to put the missing covers back. The agent can neither
// trace it nor signal it.
func (c *container) recover(p Plan) error {
	b, err := json.Marshal(p.covers())
	if err != nil {
		return err
	}
	list, err := SealedFile("hermes-wrap-covers", b)
	if err != nil {
		return err
	}
	defer list.Close()
	fd, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open own executable: %w", err)
	}
	self := os.NewFile(uintptr(fd), "self")
	defer self.Close()
	caps := []string{"CAP_SYS_ADMIN"}
	proc := &libcontainer.Process{
		Args: []string{fmt.Sprintf("/proc/self/fd/%d", fdCoverSelf), stageArgCover},
		Env:  []string{"GOMAXPROCS=1"}, Cwd: "/", Stderr: os.Stderr,
		ExtraFiles:   []*os.File{list, self},
		Capabilities: &configs.Capabilities{Bounding: caps, Effective: caps, Permitted: caps},
	}
	if err := c.c.Run(proc); err != nil {
		return err
	}
	state, err := proc.Wait()
	if err != nil {
		return err
	}
	if !state.Success() {
		return errors.New("it could not be put back")
	}
	return nil
}

// stageCover puts back what is missing. An entry that is gone has nothing to
// cover; its name is guarded.
func stageCover() error {
	b, err := ReadSealed(os.NewFile(fdCoverList, "covers"))
	if err != nil {
		return err
	}
	var covers []Entry
	if err := json.Unmarshal(b, &covers); err != nil {
		return err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	mounted, err := parseMountPoints(f)
	if err != nil {
		return err
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	builder := &rootBuilder{root: "/", fd: root, own: map[uint64]bool{}}
	for _, e := range covers {
		if mounted[e.Target] {
			continue
		}
		if err := builder.coverAgain(e); err != nil {
			return fmt.Errorf("%s %q: %w", e.Kind, e.Target, err)
		}
	}
	return nil
}

func (b *rootBuilder) coverAgain(e Entry) error {
	fd, err := b.open(e.Target, unix.O_PATH)
	if err == unix.ENOENT {
		return nil
	}
	if err == nil {
		unix.Close(fd)
	}
	switch e.Kind {
	case KindProtect:
		return b.cover(e, unix.MOUNT_ATTR_RDONLY)
	case KindPin:
		return b.cover(e, 0)
	}
	return b.mask(e)
}
