package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// probeHTTPS runs the clients, prints "ready" once each has a connection, and
// after a line of input how many requests they made in how many seconds. The
// client is a lean one: what it costs itself would hide what the proxy costs.
func probeHTTPS(args []string) error {
	mode, addr, name := args[0], args[1], args[2]
	config := &tls.Config{ServerName: name, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	clients := make([]*httpsClient, httpsClients)
	for i := range clients {
		clients[i] = &httpsClient{addr: addr, config: config}
		if err := clients[i].get(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var count atomic.Int64
	var failed atomic.Value
	var wg sync.WaitGroup
	begin := time.Now()
	for _, c := range clients {
		wg.Go(func() {
			for time.Since(begin) < httpsSeconds*time.Second {
				if mode == "new" {
					c.close()
				}
				if err := c.get(); err != nil {
					failed.Store(err)
					return
				}
				count.Add(1)
			}
		})
	}
	wg.Wait()
	if err, ok := failed.Load().(error); ok {
		return err
	}
	fmt.Println(count.Load(), time.Since(begin).Seconds())
	return nil
}

// httpsClient makes requests on one connection after the other.
type httpsClient struct {
	addr   string
	config *tls.Config
	conn   *tls.Conn
	in     *bufio.Reader
}

func (c *httpsClient) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (c *httpsClient) get() error {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return err
		}
		c.conn = tls.Client(conn, c.config)
		c.in = bufio.NewReader(c.conn)
	}
	return getOnce(c.conn, c.in, c.addr)
}

// getOnce makes one request and reads its answer. The Host field has the port,
// and the name even where the address is dialled.
func getOnce(c *tls.Conn, in *bufio.Reader, addr string) error {
	if err := c.Handshake(); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(addr)
	if _, err := fmt.Fprintf(c, "GET /bench/a HTTP/1.1\r\nHost: %s:%s\r\nUser-Agent: bench\r\n\r\n", c.ConnectionState().ServerName, port); err != nil {
		return err
	}
	length := -1
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		text := strings.TrimSpace(string(line))
		if first && !strings.HasPrefix(text, "HTTP/1.1 200") {
			return fmt.Errorf("got %q, want 200", text)
		}
		if text == "" {
			break
		}
		if v, ok := strings.CutPrefix(strings.ToLower(text), "content-length: "); ok {
			length, _ = strconv.Atoi(v)
		}
	}
	if length < 0 {
		return fmt.Errorf("the answer has no length")
	}
	_, err := io.CopyN(io.Discard, in, int64(length))
	return err
}
