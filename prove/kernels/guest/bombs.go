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

// bombMemory takes 16 MiB after another up to 640, and says each time how much
// it has.
func bombMemory() error {
	var all [][]byte
	for n := 16; n <= 640; n += 16 {
		b := make([]byte, 16*mebi)
		for i := 0; i < len(b); i += os.Getpagesize() {
			b[i] = byte(n)
		}
		all = append(all, b)
		fmt.Println("MiB", n)
	}
	fmt.Println("DONE", len(all))
	return nil
}

// bombFork starts up to 200 processes that stay, and says how many it got.
func bombFork() error {
	n := 0
	for ; n < 200; n++ {
		if err := exec.Command("/bin/sleep", "100").Start(); err != nil {
			fmt.Println("refused:", err)
			break
		}
	}
	fmt.Println("processes", n)
	return nil
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
	fmt.Println("thousandths", int(1000*used/time.Since(began)))
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
	fmt.Println(allowedAnswer)
	return nil
}
