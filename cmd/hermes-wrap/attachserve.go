package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// attachRequest asks for the terminal of a run in the background.
type attachRequest struct {
	Rows uint16 `json:"rows,omitempty"`
	Cols uint16 `json:"cols,omitempty"`
	// ReadOnly looks on and types nothing.
	ReadOnly bool `json:"read_only,omitempty"`
}

// attach shows the terminal to a peer until the run is over or the peer gone.
// Both directions of the terminal go through a socket that comes with the answer.
func (c *controller) attach(p *peer, q *attachRequest) {
	a := controlAnswer{Run: c.launch.dir.Id}
	if q == nil {
		q = &attachRequest{}
	}
	v, ours, theirs, err := c.enter(q)
	if err != nil {
		a.failed(err)
		_ = p.send(a)
		return
	}
	defer c.screen.leave(v)
	defer ours.Close()
	err = p.send(a, theirs)
	theirs.Close()
	if err != nil {
		return
	}
	go c.follow(p, v, ours, q.ReadOnly)
	if !q.ReadOnly {
		c.screen.resize(q.Rows, q.Cols, true)
		go func() { _, _ = io.Copy(c.screen.master, ours) }()
	}
	if c.screen.serve(v, ours) != nil || c.screen.hasLeft(v) {
		return
	}
	_ = ours.Close()
	<-c.launch.over
	_ = p.send(controlAnswer{Run: a.Run, Exit: &controlExit{Code: c.launch.code}})
}

// enter lets a peer in and makes the socket for it.
func (c *controller) enter(q *attachRequest) (v *viewer, ours net.Conn, theirs *os.File, err error) {
	if c.screen == nil {
		return nil, nil, nil, errors.New("the run has no terminal of its own")
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("attach: %w", err)
	}
	mine := os.NewFile(uintptr(fds[0]), "attached")
	theirs = os.NewFile(uintptr(fds[1]), "attached")
	ours, err = net.FileConn(mine)
	mine.Close()
	if err == nil {
		err = c.record("attach", "")
	}
	if err == nil {
		v, err = c.screen.enter(!q.ReadOnly)
	}
	if err != nil {
		theirs.Close()
		if ours != nil {
			ours.Close()
		}
		return nil, nil, nil, err
	}
	return v, ours, theirs, nil
}

// follow takes what a peer says of its terminal's size until it is gone.
func (c *controller) follow(p *peer, v *viewer, ours net.Conn, readOnly bool) {
	for {
		var o controlOrder
		files, err := p.receive(&o, 0)
		if err != nil {
			c.screen.leave(v)
			_ = ours.Close()
			return
		}
		closeFiles(files)
		if !readOnly {
			c.screen.resize(o.Rows, o.Cols, false)
		}
	}
}
