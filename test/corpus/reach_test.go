package corpus

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// canary is what the targets answer; nobody inside knows it otherwise.
const canary = "canary of the host"

// patience bounds one attempt. What is refused is refused much earlier.
const patience = 2 * time.Second

// reach makes each attempt "NAME=KIND,ARGUMENT" and prints whether it got
// through: "NAME ok" or "NAME " and why not.
func reach(attempts []string) {
	for _, a := range attempts {
		name, what, _ := strings.Cut(a, "=")
		kind, arg, _ := strings.Cut(what, ",")
		got := "ok"
		if err := try(kind, arg); err != nil {
			got = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(name, got)
	}
}

func try(kind, arg string) error {
	switch kind {
	case "tcp":
		return talk(arg)
	case "udp":
		return datagram("udp", arg)
	case "unixgram":
		return datagram("unixgram", arg)
	case "relay":
		return throughRelay(arg)
	case "sockets":
		return findSockets(strings.Split(arg, ":"))
	case "open":
		f, err := os.Open(arg)
		if err == nil {
			_ = f.Close()
		}
		return err
	case "listen":
		return listenUntilEnd(arg)
	}
	return fmt.Errorf("unknown attempt %q", kind)
}

// talk asks in HTTP, so that a denial is answered, and looks for the canary.
func talk(addr string) error {
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	return ask(c)
}

func ask(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: denied.test\r\nVia: 1.1 relay\r\nX-Forwarded-For: 127.0.0.1\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	b, err := io.ReadAll(c)
	if !strings.Contains(string(b), canary) {
		return fmt.Errorf("no canary in %q (%w)", b, err)
	}
	return nil
}

// datagram sends one and waits for the canary. Datagrams to a Unix socket are
// not answered: sending is enough there.
func datagram(network, addr string) error {
	c, err := net.DialTimeout(network, addr, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "hello"); err != nil || network == "unixgram" {
		return err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	if err == nil && string(b[:n]) != canary {
		err = fmt.Errorf("another answer: %q", b[:n])
	}
	return err
}

// throughRelay asks a relay of its own, which connects on its behalf.
func throughRelay(addr string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		in, err := l.Accept()
		if err != nil {
			return
		}
		defer in.Close()
		out, err := net.DialTimeout("tcp", addr, patience)
		if err != nil {
			return
		}
		defer out.Close()
		go func() { _, _ = io.Copy(out, in) }()
		_, _ = io.Copy(in, out)
	}()
	return talk(l.Addr().String())
}

// findSockets succeeds where a Unix socket can be seen below one of the roots.
func findSockets(roots []string) error {
	for _, root := range roots {
		found := ""
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type()&fs.ModeSocket != 0 {
				found = path
				return fs.SkipAll
			}
			return nil
		})
		if found != "" {
			return nil
		}
	}
	return fmt.Errorf("no socket below %q", roots)
}

// listenUntilEnd listens, says so, and answers until standard input ends.
func listenUntilEnd(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, canary)
			_ = c.Close()
		}
	}()
	fmt.Println("listening")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return nil
}
