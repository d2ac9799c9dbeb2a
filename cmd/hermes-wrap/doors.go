package main

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
)

// doors are the sockets of a run that its proxy serves, kept for the next one.
// They are bare descriptors: as files of the launcher's poller they would wake it
// with every connection.
type doors struct {
	listeners, resolvers []int
	metrics              int // -1: none
}

// keepDoors takes the sockets over, and closes the files.
func keepDoors(listeners, resolvers []*os.File, metrics *os.File) (*doors, error) {
	d := &doors{metrics: -1}
	var err error
	keep := func(f *os.File) int {
		fd, dupErr := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if dupErr != nil {
			err, fd = fmt.Errorf("keep the sockets: %w", dupErr), -1
		}
		f.Close()
		return fd
	}
	for _, f := range listeners {
		d.listeners = append(d.listeners, keep(f))
	}
	for _, f := range resolvers {
		d.resolvers = append(d.resolvers, keep(f))
	}
	if metrics != nil {
		d.metrics = keep(metrics)
	}
	return d, err
}

// files gives them for handing over; the caller closes the files.
func (d *doors) files() (listeners, resolvers []*os.File, metrics *os.File, err error) {
	open := func(fd int) *os.File {
		fresh, dupErr := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if dupErr != nil {
			err = fmt.Errorf("hand the sockets over: %w", dupErr)
			return nil
		}
		return os.NewFile(uintptr(fresh), "door")
	}
	for _, fd := range d.listeners {
		listeners = append(listeners, open(fd))
	}
	for _, fd := range d.resolvers {
		resolvers = append(resolvers, open(fd))
	}
	if d.metrics >= 0 {
		metrics = open(d.metrics)
	}
	return listeners, resolvers, metrics, err
}

// refuse stands at the doors while no proxy does, so that nobody inside waits:
// connections are reset, names do not resolve. stop ends that. What could not be
// stood at waits for the next proxy.
func (d *doors) refuse() (stop func()) {
	listeners, resolvers, metrics, _ := d.files()
	if metrics != nil {
		metrics.Close()
	}
	var closers []func() error
	for _, f := range listeners {
		if l, err := net.FileListener(f); err == nil {
			closers = append(closers, l.Close)
			go proxy.RefuseTCP(l)
		}
		f.Close()
	}
	for _, f := range resolvers {
		pc, err := net.FilePacketConn(f)
		f.Close()
		if c, ok := pc.(*net.UDPConn); err == nil && ok {
			closers = append(closers, c.Close)
			go func() { _ = proxy.RefuseDNS(c) }()
		}
	}
	return func() {
		for _, c := range closers {
			_ = c()
		}
	}
}

func (d *doors) close() {
	if d == nil {
		return
	}
	for _, fd := range append(append(d.listeners, d.resolvers...), d.metrics) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	*d = doors{metrics: -1}
}
