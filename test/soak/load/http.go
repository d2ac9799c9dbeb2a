package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// killable is a client with one connection, which can be ended from outside.
type killable struct {
	*http.Client
	transport *http.Transport
	mu        sync.Mutex
	conn      net.Conn
}

func newKillable(h2 bool) *killable {
	k := &killable{}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	k.transport = &http.Transport{
		Protocols: protocols, MaxConnsPerHost: 1, IdleConnTimeout: 20 * time.Second, DisableCompression: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			k.mu.Lock()
			defer k.mu.Unlock()
			k.conn = c
			return c, err
		},
	}
	k.Client = &http.Client{Transport: k.transport, Timeout: 20 * time.Second}
	return k
}

// kill ends the connection as a crash would.
func (k *killable) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t, ok := k.conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
		_ = t.Close()
	}
}

func (l *load) http1(ctx context.Context) { l.requests(ctx, false) }
func (l *load) http2(ctx context.Context) { l.requests(ctx, true) }

// requests uses one connection for a while. POST is sent once: a client that
// sends a request again on its own would make two of one number.
func (l *load) requests(ctx context.Context, h2 bool) {
	k := newKillable(h2)
	defer k.transport.CloseIdleConnections()
	for range 50 {
		if ctx.Err() != nil {
			return
		}
		if chance(40) {
			time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, k.kill)
		}
		host, kind := l.API, "api"
		if chance(20) {
			host, kind = l.Broken, "broken"
		}
		n := l.next()
		group := "even"
		if n%2 == 1 {
			group = "odd"
		}
		l.outcome(kind, n, k.post(ctx, fmt.Sprintf("https://%s/n/%s/%d", host, group, n)))
		l.rest(ctx)
	}
}

func (k *killable) post(ctx context.Context, url string) int {
	body := strings.NewReader(strings.Repeat("x", rand.IntN(3000)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, io.NopCloser(body))
	if err != nil {
		return 0
	}
	req.ContentLength = int64(body.Len())
	if body.Len() == 0 {
		req.Body = http.NoBody
	}
	resp, err := k.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// socket opens a WebSocket and talks on it until something ends it.
func (l *load) socket(ctx context.Context) {
	k := newKillable(false)
	defer k.transport.CloseIdleConnections()
	n := l.next()
	c, resp, err := websocket.Dial(ctx, fmt.Sprintf("wss://%s/ws/%d", l.WS, n), &websocket.DialOptions{HTTPClient: k.Client}) //nolint:bodyclose // the library closes it
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	l.outcome("ws", n, status)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	for range 60 {
		if chance(100) {
			k.kill()
		}
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		err := c.Write(short, websocket.MessageText, []byte(strings.Repeat("m", rand.IntN(2000))))
		if err == nil {
			_, _, err = c.Read(short)
		}
		cancel()
		if err != nil {
			return
		}
		l.rest(ctx)
	}
	_ = c.Close(websocket.StatusNormalClosure, "")
}
