package proxy

import (
	"net"
	"time"
)

// nopConn is a connection of which only the deadlines are used.
type nopConn struct{ net.Conn }

func (nopConn) SetReadDeadline(time.Time) error { return nil }
