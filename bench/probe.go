package main

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// probe is what runs inside the sandbox, and bare for the comparison.
func probe(args []string) error {
	roles := map[string]struct {
		words int // at least
		run   func([]string) error
	}{
		"calls":   {1, probeCalls},
		"time":    {3, probeTime},
		"up":      {2, func(a []string) error { return probeBytes('u', a) }},
		"down":    {2, func(a []string) error { return probeBytes('d', a) }},
		"connect": {2, probeConnect},
		"relay":   {1, probeRelay},
		"hold":    {3, probeHold},
		"https":   {5, probeHTTPS},
	}
	if len(args) == 0 {
		return errors.New("probe: no role")
	}
	role, ok := roles[args[0]]
	if !ok || len(args)-1 < role.words {
		return fmt.Errorf("probe %q: unknown, or words are missing", args[0])
	}
	return role.run(args[1:])
}

// probeCalls prints nanoseconds for each of callKinds: the least of several
// batches, since everything that disturbs makes a batch slower.
func probeCalls(args []string) error {
	zero, err := syscall.Open("/dev/zero", syscall.O_RDONLY, 0)
	if err != nil {
		return err
	}
	var st syscall.Stat_t
	one := make([]byte, 1)
	for _, call := range []func() error{
		func() error { syscall.Getpid(); return nil },
		func() error { _, err := syscall.Read(zero, one); return err },
		func() error { return syscall.Stat(args[0], &st) },
		func() error {
			fd, err := syscall.Open(args[0], syscall.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return syscall.Close(fd)
		},
	} {
		var batches series
		for range 15 {
			const n = 20_000
			begin := time.Now()
			for range n {
				if err := call(); err != nil {
					return err
				}
			}
			batches = append(batches, float64(time.Since(begin).Nanoseconds())/n)
		}
		fmt.Println(batches.min())
	}
	return nil
}

// probeTime runs a command several times and prints the seconds of each.
func probeTime(args []string) error {
	first, err1 := strconv.Atoi(args[0])
	n, err2 := strconv.Atoi(args[1])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for i := range n {
		words := slices.Clone(args[2:])
		for w := range words {
			words[w] = strings.ReplaceAll(words[w], "{i}", strconv.Itoa(first+i))
		}
		cmd := exec.Command(words[0], words[1:]...)
		begin := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run %q: %w: %s", words[0], err, out)
		}
		fmt.Println(time.Since(begin).Seconds())
	}
	return nil
}

func request(what byte, count int) []byte {
	return binary.BigEndian.AppendUint64([]byte{what}, uint64(count))
}

// probeBytes moves bytes and prints the seconds.
func probeBytes(what byte, args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	begin := time.Now()
	if _, err := c.Write(request(what, count)); err != nil {
		return err
	}
	block := make([]byte, 256<<10)
	if what == 'u' {
		for left := count; left > 0; left -= len(block) {
			if _, err := c.Write(block[:min(left, len(block))]); err != nil {
				return err
			}
		}
		count = 1
	}
	for count > 0 {
		n, err := c.Read(block)
		if err != nil {
			return err
		}
		count -= n
	}
	fmt.Println(time.Since(begin).Seconds())
	return nil
}

// probeConnect opens connections one after the other, each with one round trip.
func probeConnect(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(args[0])
	if err != nil {
		return err
	}
	addrs, err := net.LookupHost(host) // once, so that connections are compared and not resolvers
	if err != nil {
		return err
	}
	begin := time.Now()
	for range n {
		c, err := net.Dial("tcp", net.JoinHostPort(addrs[0], port))
		if err != nil {
			return err
		}
		if err := echoOnce(c); err != nil {
			return err
		}
		_ = c.Close()
	}
	fmt.Println(time.Since(begin).Seconds())
	return nil
}

func echoOnce(c net.Conn) error {
	if _, err := c.Write(request('e', 0)); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// probeRelay is the bare relay that the proxy is compared with. On Linux
// io.Copy between two TCP connections is splice(2).
func probeRelay(args []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = l.Close()
	}()
	for {
		c, err := l.Accept()
		if err != nil {
			return nil
		}
		go func() {
			defer func() { _ = c.Close() }()
			up, err := net.Dial("tcp", args[0])
			if err != nil {
				return
			}
			defer func() { _ = up.Close() }()
			go func() {
				_, _ = io.Copy(up, c)
				_ = up.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(c, up)
		}()
	}
}

// probeHold opens as many connections as each line of its input says, uses
// each once, and keeps all of them.
func probeHold(args []string) error {
	var all []net.Conn
	fmt.Println("ready")
	for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
		n, err := strconv.Atoi(scan.Text())
		if err != nil {
			return err
		}
		for range n {
			c, err := net.Dial("tcp", args[1])
			if err != nil {
				return err
			}
			if args[0] == "raw" {
				err = echoOnce(c)
			} else {
				t := tls.Client(c, &tls.Config{ServerName: args[2]})
				c, err = t, getOnce(t, bufio.NewReader(t), args[1])
			}
			if err != nil {
				return err
			}
			all = append(all, c)
		}
		fmt.Println(len(all))
	}
	return nil
}
