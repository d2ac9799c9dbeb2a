package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// A run is controlled through a Unix socket in its directory. One connection
// carries one request and its answer, each a packet with one JSON object.
const (
	controlName  = "control"
	controlBytes = 64 << 10 // the most that a packet may hold
	// controlWait bounds how long a peer may take to ask and to fetch its answer.
	controlWait = 10 * time.Second
	controlOpen = 16 // connections at a time
	// controlProblems is how many mistakes of a policy one answer lists.
	controlProblems = 50
)

// The operations.
const (
	opReload = "reload"
	opStatus = "status"
)

// controlRequest asks for one operation.
type controlRequest struct {
	Op string `json:"op"`
}

// controlAnswer answers it. Without Error everything was done that was asked.
type controlAnswer struct {
	Run    string     `json:"run"`
	Reload *reloaded  `json:"reload,omitempty"`
	Status *runStatus `json:"status,omitempty"`
	Error  string     `json:"error,omitempty"`
	// Static names what only the next run can have; Problems are mistakes of the
	// policy, of which there may be more.
	Static   []string        `json:"static,omitempty"`
	Problems policy.Problems `json:"problems,omitempty"`
}

// runStatus is what a run says of itself.
type runStatus struct {
	Pid     int       `json:"pid"` // of the launcher
	Command string    `json:"command"`
	Policy  string    `json:"policy"`
	Digest  string    `json:"digest"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Ready   bool      `json:"ready"`
}

// control serves the socket of one run.
type control struct {
	l      *net.UnixListener
	answer func(controlRequest) controlAnswer
	// allowed tells whether a peer may ask at all.
	allowed func(unix.Ucred) bool
	slots   chan struct{}
	wg      sync.WaitGroup
}

// openControl makes the socket in the run's own directory, which is the user's
// alone and not to be seen inside. allowed is asked about every peer.
func openControl(dir string, allowed func(unix.Ucred) bool, answer func(controlRequest) controlAnswer) (*control, error) {
	l, err := listenPrivate(dir, controlName, unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	defer l.Close()
	list, err := net.FileListener(l)
	if err != nil {
		return nil, fmt.Errorf("open the control socket: %w", err)
	}
	u, ok := list.(*net.UnixListener)
	if !ok {
		return nil, errors.New("BUG: the control socket is not a Unix socket")
	}
	c := &control{l: u, answer: answer, allowed: allowed, slots: make(chan struct{}, controlOpen)}
	c.wg.Go(c.serve)
	return c, nil
}

// listenPrivate makes a listening Unix socket with mode 0600. The path goes
// through a descriptor, since sockaddr_un has room for 107 bytes only.
func listenPrivate(dir, name string, kind int) (*os.File, error) {
	at, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), name)
	// The mode of the socket is the one of its name once it is bound: there is
	// no moment at which others could connect.
	err = unix.Fchmod(fd, 0o600)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), name)})
	}
	if err == nil {
		err = unix.Listen(fd, controlOpen)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("listen on %q: %w", dir+"/"+name, err)
	}
	return f, nil
}

// serve accepts until close.
func (c *control) serve() {
	for {
		conn, err := c.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // descriptors are short
			continue
		}
		select {
		case c.slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		c.wg.Go(func() {
			defer func() { <-c.slots }()
			defer func() { _ = conn.Close() }()
			c.handle(conn)
		})
	}
}

// handle answers one peer. Who may not ask gets no answer.
func (c *control) handle(conn *net.UnixConn) {
	who, err := peerOf(conn)
	if err != nil || !c.allowed(who) || conn.SetDeadline(time.Now().Add(controlWait)) != nil {
		return
	}
	q, err := readRequest(conn)
	answer := controlAnswer{}
	if err != nil {
		answer.Error = err.Error()
	} else {
		answer = c.answer(q)
	}
	b, err := json.Marshal(answer)
	if err != nil || len(b) > controlBytes {
		b = []byte(`{"error":"the answer is too long"}`)
	}
	if conn.SetDeadline(time.Now().Add(controlWait)) == nil {
		_, _ = conn.Write(b)
	}
}

func readRequest(conn *net.UnixConn) (q controlRequest, err error) {
	b := make([]byte, controlBytes+1)
	n, err := conn.Read(b)
	switch {
	case err != nil:
		return q, err
	case n > controlBytes:
		return q, errors.New("the request is too long")
	}
	d := json.NewDecoder(strings.NewReader(string(b[:n])))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, fmt.Errorf("decode the request: %w", err)
	}
	if d.More() {
		return q, errors.New("decode the request: data after the end")
	}
	return q, nil
}

// close ends the socket and the peers on it.
func (c *control) close() {
	_ = c.l.Close()
}

// peerOf asks the kernel who connected.
func peerOf(conn *net.UnixConn) (who unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return who, err
	}
	ctlErr := raw.Control(func(fd uintptr) {
		var u *unix.Ucred
		if u, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			who = *u
		}
	})
	return who, errors.Join(ctlErr, err)
}

// mayControl lets the run's own user in, and root, but nobody inside: in the
// tier without namespaces the command has the same user and the same files.
func mayControl(who unix.Ucred) bool {
	if int(who.Uid) != os.Geteuid() && who.Uid != 0 {
		return false
	}
	return who.Pid > 0 && !descends(int(who.Pid), os.Getpid())
}

// descends tells whether a process is a child of another, or a child's child
// and so on. A process that cannot be read counts as one.
func descends(pid, of int) bool {
	for range 1 << 16 {
		if pid == of {
			return true
		}
		if pid <= 1 {
			return false
		}
		parent, err := parentOf(pid)
		if err != nil {
			return true
		}
		pid = parent
	}
	return true
}

func parentOf(pid int) (int, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	return parseParent(string(b))
}

// parseParent reads the fourth field of /proc/PID/stat; the second one, the
// program's name, may hold anything.
func parseParent(stat string) (int, error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errors.New("parse /proc/PID/stat: no name")
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 2 {
		return 0, errors.New("parse /proc/PID/stat: no parent")
	}
	return strconv.Atoi(fields[1])
}
