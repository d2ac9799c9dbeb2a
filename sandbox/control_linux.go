package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// message travels between the launcher and init. The peer on the launcher's
// side is trusted; init is not once the agent runs, so the launcher takes from
// it nothing but an exit status, a stop and sockets of init's own namespace.
type message struct {
	Op     string `json:"op"`
	Signal int    `json:"signal,omitempty"`
	Group  bool   `json:"group,omitempty"`
	Status int    `json:"status,omitempty"` // wait status, see wait(2)
	Step   string `json:"step,omitempty"`
	Error  string `json:"error,omitempty"`
	Errno  int    `json:"errno,omitempty"`
	Pid    int    `json:"pid,omitempty"`
	Family int    `json:"family,omitempty"`
	Port   int    `json:"port,omitempty"` // of the proxy, in the tier without namespaces
	Path   string `json:"path,omitempty"` // of a Unix socket inside
	Found  string `json:"found,omitempty"`
	Blobs  []Blob `json:"blobs,omitempty"` // the names of files, in their order
	// Id joins an answer to its request, and a task to its end. 0: neither.
	Id       int     `json:"id,omitempty"`
	Streams  [3]bool `json:"streams,omitzero"` // start: which standard streams come along, after the block
	Terminal bool    `json:"terminal,omitempty"`
	Rows     uint16  `json:"rows,omitempty"`
	Cols     uint16  `json:"cols,omitempty"`
	Datagram bool    `json:"datagram,omitempty"`
	Sweep    bool    `json:"sweep,omitempty"`

	Layers []layerNews `json:"layers,omitempty"` // made by the stage, files in their order
	Dirs   []LayerDir  `json:"dirs,omitempty"`

	files []*os.File
}

// The operations. Launcher to init: blobs, dirs, kept, resume, go, covered, signal,
// and those with an answer: socket, start, pause, unpause, listen, dial. Init to
// launcher: network, want, copying, layers, tty, started, stopped, exited,
// failed, bare, answer, ended.
const (
	opNetwork = "network"
	opTTY     = "tty"
	opStarted = "started"
	opStopped = "stopped"
	opExited  = "exited"
	opFailed  = "failed"
	opSignal  = "signal"
	opResume  = "resume"
	opGo      = "go" // launcher: the proxy serves, the command may run
	opSocket  = "socket"
	opBare    = "bare"    // init: a cover is gone, everything is stopped
	opCovered = "covered" // launcher: it is back
	opBlobs   = "blobs"
	opWant    = "want"    // stage: layers need directories on disk
	opDirs    = "dirs"    // launcher: here they are
	opCopying = "copying" // stage: how far a copy of a tree is
	opLayers  = "layers"  // stage: the layers are made
	opKept    = "kept"    // launcher: they are noted down
	opStart   = "start"   // start a task: its block and streams
	opPause   = "pause"   // stop everything inside
	opUnpause = "unpause" // continue what pause stopped
	opListen  = "listen"  // make a listening socket at a path inside
	opDial    = "dial"    // connect to a socket at a path inside
	opAnswer  = "answer"  // init: to the request with this id
	opEnded   = "ended"   // init: the task with this id ended
)

// Channel is one end of a connection that carries one JSON object a packet,
// with descriptors. The launcher has one with init and one with the proxy.
type Channel struct {
	f   *os.File
	buf []byte // of the one reader
}

// NewChannelPair gives both ends; they close on exec.
func NewChannelPair() (*Channel, *Channel, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("create control socket: %w", err)
	}
	return OpenChannel(fds[0]), OpenChannel(fds[1]), nil
}

// OpenChannel takes over a descriptor that was inherited.
func OpenChannel(fd int) *Channel { return &Channel{f: os.NewFile(uintptr(fd), "control")} }

// Send writes one object; the files stay open here. What does not get through the
// peer would wait for without end, so a send that fails ends the connection:
// both readers read io.EOF. The exceptions leave it as it is, and the caller has
// something else to say: unix.EMSGSIZE, an object too large for one packet, and
// unix.ETOOMANYREFS, descriptors while too many of the user's are on their way
// (unix(7)), which other processes of the user decide.
func (c *Channel) Send(v any, files ...*os.File) error {
	err := c.write(v, files)
	if err != nil && !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.ETOOMANYREFS) {
		_ = c.use(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) })
	}
	return err
}

func (c *Channel) write(v any, files []*os.File) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	return c.use(func(fd int) error {
		for {
			if err := unix.Sendmsg(fd, b, oob, nil, unix.MSG_NOSIGNAL); err != unix.EINTR {
				return err
			}
		}
	})
}

// use keeps the descriptor from being closed, and its number from being another
// file's, while a call is made with it.
func (c *Channel) use(call func(fd int) error) error {
	conn, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	if conn.Control(func(fd uintptr) { err = call(int(fd)) }) != nil {
		return os.ErrClosed
	}
	return err
}

// maxFiles bounds the descriptors of one packet (the kernel's own bound, SCM_MAX_FD, is 253).
const maxFiles = 128

// Receive blocks for the next object, for one caller at a time; io.EOF means that the peer is gone.
func (c *Channel) Receive(v any) ([]*os.File, error) {
	room := unix.CmsgSpace(maxFiles * 4)
	if c.buf == nil {
		c.buf = make([]byte, 64<<10+room)
	}
	buf, oob := c.buf[room:], c.buf[:room]
	var n, oobn int
	err := c.use(func(fd int) (err error) {
		for reset := false; ; reset = reset || err == unix.ECONNRESET {
			n, oobn, _, _, err = unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
			// A peer that ended without reading everything resets the connection. That
			// is told once, and before what it sent last, which is how it ended.
			if err != unix.EINTR && (err != unix.ECONNRESET || reset) {
				return err
			}
		}
	})
	if errors.Is(err, unix.ECONNRESET) || (err == nil && n == 0) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, fmt.Errorf("read control socket: %w", err)
	}
	files, err := receivedFiles(oob[:oobn])
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(buf[:n], v); err != nil {
		closeAll(files)
		return nil, fmt.Errorf("decode control message: %w", err)
	}
	return files, nil
}

// Close closes this descriptor. The peer reads io.EOF once no process has another
// one and no call waits at it.
func (c *Channel) Close() error { return c.f.Close() }

// HangUp ends the connection, whoever waits at this end or has it too: the peer
// and our own reader read io.EOF.
func (c *Channel) HangUp() error {
	err := c.use(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) })
	return errors.Join(err, c.Close())
}

// EndSending tells the peer that nothing more comes; it can still answer.
func (c *Channel) EndSending() error {
	return c.use(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

// File is the descriptor, to be inherited by a child.
func (c *Channel) File() *os.File { return c.f }

func (c *Channel) send(m message) error { return c.Send(m, m.files...) }

func (c *Channel) receive() (m message, err error) {
	files, err := c.Receive(&m)
	m.files = files
	return m, err
}

func receivedFiles(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse control message: %w", err)
	}
	var files []*os.File
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// SealedFile puts bytes in a memfd that nobody can change any more: how a plan
// and a filter reach init without a file and without an environment variable.
func SealedFile(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create %q: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, fmt.Errorf("write %q: %w", name, err)
	}
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal %q: %w", name, err)
	}
	return f, nil
}

// SharedFile is a memfd of a fixed size in bytes, for whoever maps it. It is
// sparse: what nobody writes takes no memory.
func SharedFile(name string, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create %q: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil, fmt.Errorf("size %q: %w", name, err)
	}
	// A mapping of a file that shrank is a SIGBUS.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal %q: %w", name, err)
	}
	return f, nil
}

// ReadSealed reads a memfd from its beginning, whoever has read it before.
func ReadSealed(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, st.Size())
	_, err = f.ReadAt(b, 0)
	if err == io.EOF {
		err = nil
	}
	return b, err
}
