package sandbox

/*
#include "starter.h"
*/
import "C"

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// starterCalls are what the starter needs of the filter that it is under.
const starterCalls = "prctl recvmsg write close mmap munmap clone setsid setpgid getpid ioctl dup3 chdir rt_sigprocmask"

// noStarter says why a run with this plan has no starter and executes its
// command directly; nil when it has one.
func (p Plan) noStarter() error {
	if len(p.Filter.Deny) == 0 {
		return nil
	}
	actions, err := filterActions(p.Filter)
	if err != nil {
		return err
	}
	for _, call := range strings.Fields(starterCalls) {
		if !actions[call].allow {
			return fmt.Errorf("starting a further process needs %s, which syscalls.deny refuses", call)
		}
	}
	return nil
}

// block is what is executed, as the starter reads it; see starter.h.
type block struct {
	programs  []string // tried in turn, as execvp(3) does
	argv, env []string
	cwd       string
}

func (b block) seal() (*os.File, error) {
	for _, s := range slices.Concat(b.programs, b.argv, b.env, []string{b.cwd}) {
		if strings.ContainsRune(s, 0) {
			return nil, fmt.Errorf("%.40q holds a zero byte: %w", s, unix.EINVAL)
		}
	}
	lists := [][]string{b.programs, b.argv, b.env}
	words := len(lists) + 1
	for _, l := range lists {
		words += len(l) + 1
	}
	head := make([]uint64, 0, words)
	var lines []uint64
	var text bytes.Buffer
	put := func(s string) uint64 {
		at := words*8 + text.Len()
		text.WriteString(s)
		text.WriteByte(0)
		return uint64(at)
	}
	for _, l := range lists {
		head = append(head, uint64((len(lists)+1+len(lines))*8))
		for _, s := range l {
			lines = append(lines, put(s))
		}
		lines = append(lines, 0)
	}
	head = append(head, put(b.cwd))
	data := make([]byte, 0, words*8+text.Len())
	for _, w := range slices.Concat(head, lines) {
		data = binary.NativeEndian.AppendUint64(data, w)
	}
	return SealedFile("hermes-wrap-task", append(data, text.Bytes()...))
}

// order is one start: what is executed and the standard streams of a process.
type order struct {
	id      int
	block   *os.File // sealed
	stdio   [3]int
	tty     int // index of the stream that is its terminal, or -1
	session bool
}

// word is what the starter says to an order.
type word struct {
	id, pid int
	err     error // why it did not start
}

// starter is init's end of the connection with the starter.
type starter struct {
	pid int
	f   *os.File
}

// newStarter gives both ends; theirs is closed by the caller.
func newStarter() (s *starter, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create the starter's socket: %w", err)
	}
	return &starter{f: os.NewFile(uintptr(fds[0]), "starter")}, os.NewFile(uintptr(fds[1]), "starter"), nil
}

func (s *starter) send(o order) error {
	st, err := o.block.Stat()
	if err != nil {
		return err
	}
	c := C.struct_hw_order{id: C.uint32_t(o.id), tty: C.int32_t(o.tty), size: C.uint64_t(st.Size())}
	if o.session {
		c.flags = C.HW_ORDER_SESSION
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&c)), unsafe.Sizeof(c))
	rights := unix.UnixRights(int(o.block.Fd()), o.stdio[0], o.stdio[1], o.stdio[2])
	for {
		if err := unix.Sendmsg(int(s.f.Fd()), b, rights, nil, unix.MSG_NOSIGNAL); err != unix.EINTR {
			return err
		}
	}
}

// read blocks for the next word; io.EOF means that the starter is gone.
func (s *starter) read() (word, error) {
	var c C.struct_hw_word
	b := unsafe.Slice((*byte)(unsafe.Pointer(&c)), unsafe.Sizeof(c))
	for {
		n, err := unix.Read(int(s.f.Fd()), b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil && err != unix.ECONNRESET:
			return word{}, fmt.Errorf("read from the starter: %w", err)
		case n != len(b):
			return word{}, io.EOF
		}
		w := word{id: int(c.id), pid: int(c.pid)}
		if c.kind != C.HW_WORD_STARTED {
			w.err = explainStep(int(c.step), unix.Errno(c.err), 0, nil)
		}
		return w, nil
	}
}

// gone is the error of a run whose starter has ended.
func (s *starter) gone(ws unix.WaitStatus) error {
	how := fmt.Sprintf("exit %d", ws.ExitStatus())
	if ws.Signaled() {
		how = "killed by " + unix.SignalName(ws.Signal())
	}
	return stepErr(StepExec, fmt.Errorf("the sandbox's starter ended (%s), and with it the run: something inside killed it", how))
}
