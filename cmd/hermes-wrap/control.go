package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// A run is controlled through a Unix socket in its directory. A connection
// begins with one request and its answer, each a packet with one JSON object;
// most end there. One that starts or joins something goes on: orders come in,
// and the last answer says how it ended.
const (
	controlName  = "control"
	controlBytes = 64 << 10 // the most that a packet may hold
	controlFiles = 3        // the most descriptors that come with one
	// controlWait bounds how long a peer may take to ask and to fetch its answer.
	controlWait    = 10 * time.Second
	controlWaiting = 64 // peers that have not asked yet
	controlOpen    = 16 // peers that are being answered
	controlLasting = 32 // connections that go on
	controlBacklog = 128
	// controlProblems is how many mistakes of a policy one answer lists.
	controlProblems = 50
)

// The operations.
const (
	opReload = "reload"
	opStatus = "status"
	opStats  = "stats"
	opStop   = "stop"
	opPause  = "pause"
	opResume = "resume"
	opExec   = "exec"
	opAttach = "attach"
)

// controlRequest asks for one operation.
type controlRequest struct {
	Op     string         `json:"op"`
	Stop   *stopRequest   `json:"stop,omitempty"`
	Exec   *execRequest   `json:"exec,omitempty"`
	Attach *attachRequest `json:"attach,omitempty"`
}

// lasting tells whether the connection goes on after the answer.
func (q controlRequest) lasting() bool { return q.Op == opExec || q.Op == opAttach }

// controlAnswer answers it. Without Error everything was done that was asked.
type controlAnswer struct {
	Run    string     `json:"run"`
	Reload *reloaded  `json:"reload,omitempty"`
	Status *runStatus `json:"status,omitempty"`
	Stats  *runStats  `json:"stats,omitempty"`
	// Exit ends a connection that went on: what it was about has ended.
	Exit *controlExit `json:"exit,omitempty"`
	// Error is what went wrong, Hint one thing to do about it, and Code the exit
	// code for whoever asked, if it is not 125.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
	Code  int    `json:"code,omitempty"`
	// Static names what only the next run can have; Problems are mistakes of the
	// policy, of which there may be more.
	Static   []string        `json:"static,omitempty"`
	Problems policy.Problems `json:"problems,omitempty"`
}

// controlExit is how a command ended.
type controlExit struct {
	Code int `json:"code"`
	// Note says what is worth knowing beside that.
	Note string `json:"note,omitempty"`
}

// controlOrder is what a connection that goes on carries in.
type controlOrder struct {
	// Signal is sent to the command's process group.
	Signal int `json:"signal,omitempty"`
	// Rows and Cols are the size of the caller's terminal.
	Rows uint16 `json:"rows,omitempty"`
	Cols uint16 `json:"cols,omitempty"`
}

// control serves the socket of one run.
type control struct {
	l *net.UnixListener
	// answer answers a peer; it sends at least one packet, and owns the files.
	answer func(p *peer, q controlRequest, files []*os.File)
	// allowed tells whether a peer may ask at all.
	allowed func(unix.Ucred) bool
	// brief and lasting are the places of those being answered.
	brief, lasting chan struct{}
	wg             sync.WaitGroup

	mu sync.Mutex
	// waiting are those who have not asked yet, the oldest first; open are those
	// that close ends.
	waiting []*peer
	open    map[*peer]bool
	closed  bool
}

// openControl makes the socket in the run's own directory, which is the user's
// alone and not to be seen inside. allowed is asked about every peer.
func openControl(dir string, allowed func(unix.Ucred) bool, answer func(*peer, controlRequest, []*os.File)) (*control, error) {
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
	c := &control{
		l: u, answer: answer, allowed: allowed, open: map[*peer]bool{},
		brief: make(chan struct{}, controlOpen), lasting: make(chan struct{}, controlLasting),
	}
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
		err = unix.Listen(fd, controlBacklog)
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
		p := &peer{conn: conn}
		c.admit(p)
		c.wg.Go(func() {
			defer c.dismiss(p)
			c.handle(p)
		})
	}
}

// admit lets a peer wait for its request. Whoever has been silent the longest
// makes room for it, so that silent peers keep nobody out.
func (c *control) admit(p *peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[p] = true
	if c.closed {
		p.close()
	}
	if c.waiting = append(c.waiting, p); len(c.waiting) > controlWaiting {
		c.waiting[0].close()
		c.waiting = c.waiting[1:]
	}
}

// asked takes a peer from those who wait.
func (c *control) asked(p *peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := slices.Index(c.waiting, p); at >= 0 {
		c.waiting = slices.Delete(c.waiting, at, at+1)
	}
}

func (c *control) dismiss(p *peer) {
	p.close()
	c.asked(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, p)
}

// handle answers one peer. Who may not ask gets no answer.
func (c *control) handle(p *peer) {
	who, err := peerOf(p.conn)
	if err != nil || !c.allowed(who) {
		return
	}
	var q controlRequest
	files, err := p.receive(&q, controlWait)
	c.asked(p)
	if err != nil {
		_ = p.send(controlAnswer{Error: err.Error()})
		return
	}
	places := c.brief
	if q.lasting() {
		places = c.lasting
		c.keep(p)
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		closeFiles(files)
		_ = p.send(controlAnswer{Error: "too many at once", Hint: "try again once others are done"})
		return
	}
	c.answer(p, q, files)
}

// keep leaves the end of a connection to what it is about.
func (c *control) keep(p *peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, p)
}

// wait returns when the last peer was answered, or after the limit.
func (c *control) wait(limit time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.wg.Wait()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// close ends the socket and the peers on it, but for those that last as long as
// what they are about.
func (c *control) close() {
	_ = c.l.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for p := range c.open {
		p.hangUp()
	}
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

// mayControl lets the run's own user in, and root, but nobody inside, of this run
// or another: in the tier without namespaces the command has the same user and
// the same files, and may be allowed local sockets.
func mayControl(who unix.Ucred) bool {
	if int(who.Uid) != os.Geteuid() && who.Uid != 0 {
		return false
	}
	return who.Pid > 0 && !isInside(int(who.Pid), os.Getpid())
}

// isInside tells whether a process is a child of this launcher or of a keeper,
// or a child's child and so on. A process that cannot be read counts as one.
func isInside(pid, launcher int) bool {
	for range 1 << 16 {
		if pid == launcher || sandbox.IsKeeper(pid) {
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
