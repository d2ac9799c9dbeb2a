package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// probeHTTPS runs the clients, prints "ready" once each has a connection, and
// after a line of input how many requests they made in how many seconds, and how
// long half of them and all but a hundredth took. The client is a lean one: what
// it costs itself would hide what the proxy costs.
func probeHTTPS(args []string) error {
	mode, via, addr, name := args[0], args[2], args[3], args[4]
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if via == "-" {
		via = ""
	}
	config := &tls.Config{ServerName: name, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	clients := make([]*httpsClient, n)
	for i := range clients {
		clients[i] = &httpsClient{via: via, addr: addr, config: config}
		if err := clients[i].get(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var wg sync.WaitGroup
	begin := time.Now()
	for _, c := range clients {
		wg.Go(func() { c.run(begin, mode == "new") })
	}
	wg.Wait()
	seconds := time.Since(begin).Seconds()
	var all []float64
	for _, c := range clients {
		if c.failed != nil {
			return c.failed
		}
		all = append(all, c.took...)
	}
	slices.Sort(all)
	fmt.Println(len(all), seconds, all[len(all)/2], all[len(all)*99/100])
	return nil
}

// httpsClient makes requests on one connection after the other, by way of a
// proxy if via is not empty.
type httpsClient struct {
	via, addr string
	config    *tls.Config
	conn      *tls.Conn
	in        *bufio.Reader
	took      []float64 // seconds of each request
	failed    error
}

// run makes requests until the time is over.
func (c *httpsClient) run(begin time.Time, anew bool) {
	for time.Since(begin) < httpsSeconds*time.Second {
		if anew {
			c.close()
		}
		at := time.Now()
		if err := c.get(); err != nil {
			c.failed = err
			return
		}
		c.took = append(c.took, time.Since(at).Seconds())
	}
}

func (c *httpsClient) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (c *httpsClient) get() error {
	if c.conn == nil {
		conn, err := c.dial()
		if err != nil {
			return err
		}
		c.conn = tls.Client(conn, c.config)
		c.in = bufio.NewReader(c.conn)
	}
	return getOnce(c.conn, c.in, c.addr)
}

// dial connects to the server, or to the proxy and through it.
func (c *httpsClient) dial() (net.Conn, error) {
	if c.via == "" {
		return net.Dial("tcp", c.addr)
	}
	conn, err := net.Dial("tcp", c.via)
	if err != nil {
		return nil, err
	}
	if _, err = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", c.addr); err == nil {
		err = connected(conn)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// connected reads the answer to CONNECT; the proxy says no more before we do.
func connected(conn net.Conn) error {
	in := bufio.NewReader(conn)
	for first := true; ; first = false {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if f := strings.Fields(line); first && (len(f) < 2 || f[1] != "200") {
			return fmt.Errorf("connect: got %q, want 200", strings.TrimSpace(line))
		}
		if strings.TrimSpace(line) == "" {
			return nil
		}
	}
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
