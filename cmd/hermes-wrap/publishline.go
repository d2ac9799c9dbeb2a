package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
)

// A connection from outside that the proxy serves comes with a line: a socket on
// which the proxy asks, with one byte, for one more connection to the port inside.
// The launcher answers with one byte and, if it could connect, with the
// descriptor. The end of the line is the end of the connection, whoever's end came
// first. So the proxy holds no way into the sandbox but to the port of the entry,
// and none before it has admitted a request.
const (
	lineRefused = 0
	lineOpened  = 1
)

// lineWait bounds one question on a line.
const lineWait = 20 * time.Second

// serveInbound gives what has the proxy serve a connection, and returns when it is
// over.
func (p *proxyClient) serveInbound(name string) func(net.Conn, func() (net.Conn, error)) {
	return func(outer net.Conn, dial func() (net.Conn, error)) {
		p.serveLine(proxyOrder{Inbound: name}, outer, dial)
	}
}

// serveLine has the proxy serve a connection, and answers on its line until it is
// over.
func (p *proxyClient) serveLine(o proxyOrder, outer net.Conn, dial func() (net.Conn, error)) {
	line, err := p.handOver(o, outer)
	outer.Close()
	if err != nil {
		return
	}
	defer func() { _ = line.Close() }()
	var question [1]byte
	for {
		if n, err := line.Read(question[:]); err != nil || n != 1 {
			return
		}
		if answerLine(line, dial) != nil {
			return
		}
	}
}

// handOver passes the connection and the proxy's end of a line.
func (p *proxyClient) handOver(o proxyOrder, outer net.Conn) (*net.UnixConn, error) {
	filer, ok := outer.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, errors.New("BUG: the connection has no descriptor")
	}
	f, err := filer.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "line")
	defer theirs.Close()
	line, err := takeLine(os.NewFile(uintptr(fds[0]), "line"))
	if err != nil {
		return nil, err
	}
	proxy, err := p.serving() // waits for one that is started again
	if err == nil {
		err = proxy.send(o, f, theirs)
	}
	if err != nil {
		_ = line.Close()
		return nil, fmt.Errorf("instruct the proxy: %w", err)
	}
	return line, nil
}

func takeLine(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	line, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("BUG: a line is a Unix socket")
	}
	return line, nil
}

// answerLine connects to the port inside and passes the connection.
func answerLine(line *net.UnixConn, dial func() (net.Conn, error)) error {
	if err := line.SetWriteDeadline(time.Now().Add(lineWait)); err != nil {
		return err
	}
	inner, err := dial()
	if err != nil {
		_, err = line.Write([]byte{lineRefused})
		return err
	}
	defer inner.Close()
	f, err := inner.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return err
	}
	defer f.Close()
	_, _, err = line.WriteMsgUnix([]byte{lineOpened}, unix.UnixRights(int(f.Fd())), nil)
	return err
}

// lineEnd is the proxy's end of a line.
type lineEnd struct {
	mu   sync.Mutex // one question at a time
	line *net.UnixConn
}

var errInnerRefused = errors.New("nothing listens there")

// dial asks for a connection. A line on which a question went wrong is closed:
// whose answer comes next would not be known.
func (e *lineEnd) dial(context.Context) (net.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.lockedDial()
	if err != nil && !errors.Is(err, errInnerRefused) {
		_ = e.line.Close()
	}
	return c, err
}

func (e *lineEnd) lockedDial() (net.Conn, error) {
	if err := e.line.SetDeadline(time.Now().Add(lineWait)); err != nil {
		return nil, err
	}
	if _, err := e.line.Write([]byte{0}); err != nil {
		return nil, err
	}
	answer, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := e.line.ReadMsgUnix(answer, oob)
	if err != nil {
		return nil, err
	}
	if n != 1 || answer[0] != lineOpened {
		return nil, errInnerRefused
	}
	fd, err := oneDescriptor(oob[:oobn])
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "inside")
	defer f.Close()
	return net.FileConn(f)
}

func oneDescriptor(oob []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return -1, errors.New("BUG: the launcher sent no connection")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, errors.New("BUG: the launcher sent no connection")
	}
	unix.CloseOnExec(fds[0])
	return fds[0], nil
}

// takeInbound serves a connection that the launcher passed.
func takeInbound(s *proxy.Server, o proxyOrder, files []*os.File) {
	defer closeFiles(files)
	if len(files) != 2 {
		return
	}
	conn, err := net.FileConn(files[0])
	if err != nil {
		return
	}
	line, err := net.FileConn(files[1])
	if err != nil {
		conn.Close()
		return
	}
	end, ok := line.(*net.UnixConn)
	if !ok {
		conn.Close()
		_ = line.Close()
		return
	}
	go func() {
		defer func() { _ = end.Close() }()
		dial := (&lineEnd{line: end}).dial
		if o.Docker {
			s.ServeDocker(context.Background(), conn, dial)
			return
		}
		s.ServeInbound(context.Background(), o.Inbound, conn, dial)
	}()
}
