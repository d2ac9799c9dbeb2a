package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

const mebi = 1 << 20

// bombMemory takes 16 MiB after another up to 320, and says each time how much
// it has.
func bombMemory() error {
	var all [][]byte
	for n := 16; n <= 320; n += 16 {
		b := make([]byte, 16*mebi)
		for i := 0; i < len(b); i += os.Getpagesize() {
			b[i] = byte(n)
		}
		all = append(all, b)
		fmt.Fprintln(os.Stdout, "MiB", n)
	}
	fmt.Fprintln(os.Stdout, "DONE", len(all))
	return nil
}

// bombFork starts up to 100 processes that stay, and says how many it got.
func bombFork() error {
	var all []*exec.Cmd
	for len(all) < 100 {
		c := exec.Command("/bin/sleep", "100")
		if err := c.Start(); err != nil {
			fmt.Fprintln(os.Stdout, "refused:", err)
			break
		}
		all = append(all, c)
	}
	fmt.Fprintln(os.Stdout, "processes", len(all))
	var err error
	for _, c := range all {
		err = errors.Join(err, c.Process.Kill())
		_ = c.Wait() // it was killed
	}
	return err
}

// burn keeps one processor busy for two seconds and says what it got of it, in
// thousandths.
func burn() error {
	began := time.Now()
	for time.Since(began) < 2*time.Second {
		for i := range 100000 {
			_ = i
		}
	}
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return err
	}
	used := time.Duration(r.Utime.Nano() + r.Stime.Nano())
	fmt.Fprintln(os.Stdout, "thousandths", int(1000*used/time.Since(began)))
	return nil
}

// fetch asks the one server that a policy allows.
func fetch() error {
	ctx := http.Client{Timeout: 10 * time.Second}
	resp, err := ctx.Get("http://allowed.test/")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if string(b) != allowedAnswer {
		return errors.Join(fmt.Errorf("status %d: %q", resp.StatusCode, b), err)
	}
	fmt.Fprintln(os.Stdout, allowedAnswer)
	return nil
}
