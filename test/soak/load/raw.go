package main

import (
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"
)

// tunnel talks through a tcp rule (0) or one that passes TLS (1).
func (l *load) tunnel(ctx context.Context, kind int) {
	addr := l.TCP
	if kind == 1 {
		addr = l.Pass
	}
	l.tried[kind].Add(1)
	raw, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return
	}
	defer func() { _ = raw.Close() }()
	c := raw
	if kind == 1 {
		host, _, _ := strings.Cut(addr, ":")
		c = tls.Client(raw, &tls.Config{ServerName: host})
	}
	first := true
	for range 60 {
		if ctx.Err() != nil {
			return
		}
		if chance(100) {
			_ = raw.(*net.TCPConn).SetLinger(0)
			return
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, rand.IntN(5000)+1)
		if _, err := c.Write(b); err != nil {
			return
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		if first {
			l.opened[kind].Add(1)
			first = false
		}
		l.rest(ctx)
	}
}

// breaker is a client that does everything wrong.
func (l *load) breaker(ctx context.Context) {
	addr := []string{l.API, l.TCP, l.Pass, l.Secret}[rand.IntN(4)]
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	host, _, _ := strings.Cut(addr, ":")
	switch rand.IntN(7) {
	case 0: // nothing at all
		l.rest(ctx)
	case 1: // garbage
		b := make([]byte, 400)
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		_, _ = c.Write(b)
		_, _ = c.Read(b)
	case 2: // half a ClientHello, then a reset
		_, _ = c.Write([]byte{0x16, 3, 1, 1, 0, 1})
		l.rest(ctx)
		_ = c.(*net.TCPConn).SetLinger(0)
	case 3: // a request that no two servers read alike
		t := tls.Client(c, &tls.Config{ServerName: host, NextProtos: []string{"http/1.1"}})
		_, _ = io.WriteString(t, "POST /x HTTP/1.1\r\nHost: "+addr+"\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n")
		_, _ = io.Copy(io.Discard, t)
	case 4: // half a request, and half closed
		t := tls.Client(c, &tls.Config{ServerName: host, NextProtos: []string{"http/1.1"}})
		_, _ = io.WriteString(t, "POST /x HTTP/1.1\r\nHost: ")
		_ = t.CloseWrite()
		_, _ = io.Copy(io.Discard, t)
	case 5: // HTTP/2 that is none
		t := tls.Client(c, &tls.Config{ServerName: host, NextProtos: []string{"h2"}})
		_, _ = io.WriteString(t, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\xff\x07\x00\x00")
		_, _ = io.Copy(io.Discard, t)
	case 6: // another server name
		t := tls.Client(c, &tls.Config{ServerName: "else.example.org"})
		_ = t.Handshake()
	}
}
