package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// peer is one end of a connection to a run's control socket.
type peer struct {
	conn *net.UnixConn
}

// send sends one packet; the files stay open here.
func (p *peer) send(v any, files ...*os.File) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > controlBytes {
		if _, ours := v.(controlAnswer); !ours {
			return errors.New("the request is too long")
		}
		b = []byte(`{"error":"the answer is too long"}`)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if err := p.conn.SetWriteDeadline(time.Now().Add(controlWait)); err != nil {
		return err
	}
	_, _, err = p.conn.WriteMsgUnix(b, rights, nil)
	return err
}

// receive waits for one packet, for ever with a wait of 0. io.EOF means that the
// other side is gone. The caller closes the files.
func (p *peer) receive(v any, wait time.Duration) (files []*os.File, err error) {
	var until time.Time
	if wait > 0 {
		until = time.Now().Add(wait)
	}
	if err := p.conn.SetReadDeadline(until); err != nil {
		return nil, err
	}
	b, rights := make([]byte, controlBytes+1), make([]byte, unix.CmsgSpace(4*controlFiles))
	n, rn, flags, _, err := p.conn.ReadMsgUnix(b, rights)
	if err == nil {
		files, err = filesOf(rights[:rn])
	}
	switch {
	case err != nil:
	case n == 0 && rn == 0:
		err = io.EOF
	case n > controlBytes || flags&unix.MSG_TRUNC != 0:
		err = errors.New("the packet is too long")
	case flags&unix.MSG_CTRUNC != 0 || len(files) > controlFiles: // the room is rounded up
		err = errors.New("too many descriptors came with the packet")
	default:
		err = decodePacket(b[:n], v)
	}
	if err != nil {
		closeFiles(files)
		return nil, err
	}
	return files, nil
}

func decodePacket(b []byte, v any) error {
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("decode the packet: %w", err)
	}
	// More would take a closing bracket for the end.
	if _, err := d.Token(); err != io.EOF {
		return errors.New("decode the packet: data after the end")
	}
	return nil
}

// filesOf takes over the descriptors that came with a packet.
func filesOf(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
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

// close ends the connection.
func (p *peer) close() { _ = p.conn.Close() }

// hangUp ends the other side's orders; what was begun for it ends in turn.
func (p *peer) hangUp() { _ = p.conn.CloseRead() }
