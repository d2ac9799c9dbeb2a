package main

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
)

// world is what a sandbox must not reach: files, processes and sockets of the
// guest's, each with the canary in it, and one server that it may reach.
type world struct {
	canary  string
	victims []*exec.Cmd
}

// account is one of the two that start things.
type account struct {
	name, home string
	id         int
}

var accounts = []account{{"root", "/root", 0}, {"tester", "/home/tester", userID}}

func accountOf(user string) account {
	if user == protocol.User {
		return accounts[1]
	}
	return accounts[0]
}

// outside is a directory of an account's that no policy grants.
func (a account) outside() string { return filepath.Join("/var/tmp", "outside-"+a.name) }

const (
	loopbackPort = 7001
	abstractName = "@hermes-canary"
)

func (w *world) open() error {
	w.canary = "CANARY-" + rand.Text()
	for _, a := range accounts {
		if err := w.files(a); err != nil {
			return err
		}
		v := exec.Command("/bin/sleep", "100000")
		v.Env = []string{"CANARY=" + w.canary}
		v.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.id), Gid: uint32(a.id)}}
		if err := v.Start(); err != nil {
			return err
		}
		w.victims = append(w.victims, v)
		if err := w.say("unix", filepath.Join(a.outside(), "socket")); err != nil {
			return err
		}
		if err := os.Chown(filepath.Join(a.outside(), "socket"), a.id, a.id); err != nil {
			return err
		}
	}
	for _, at := range []struct{ network, address string }{
		{"tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(loopbackPort))},
		{"tcp", "203.0.113.11:80"},
		{"tcp", "203.0.113.10:81"},
		{"unix", abstractName},
	} {
		if err := w.say(at.network, at.address); err != nil {
			return err
		}
	}
	return serve("203.0.113.10:80")
}

func (w *world) files(a account) error {
	ssh := filepath.Join(a.home, ".ssh")
	for _, dir := range []string{a.home, filepath.Join(a.home, "work"), ssh, a.outside()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := os.Chown(dir, a.id, a.id); err != nil {
			return err
		}
	}
	for _, f := range []string{filepath.Join(ssh, "id_ed25519"), filepath.Join(a.outside(), "secret")} {
		if err := os.WriteFile(f, []byte(w.canary), 0o600); err != nil {
			return err
		}
		if err := os.Chown(f, a.id, a.id); err != nil {
			return err
		}
	}
	return nil
}

// say listens and says the canary to whoever comes.
func (w *world) say(network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	go each(l, w.canary)
	return nil
}

// serve is the one server that may be reached.
func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 4096))
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(allowedAnswer), allowedAnswer)
			}()
		}
	}()
	return nil
}

const allowedAnswer = "reached the allowed host"

func each(l net.Listener, canary string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprintln(c, canary)
		c.Close()
	}
}

// variables tell a script where things are.
func (w *world) variables(a account) []string {
	victim := w.victims[0]
	if a.id == userID {
		victim = w.victims[1]
	}
	return []string{
		"VICTIM=" + strconv.Itoa(victim.Process.Pid), "OUTSIDE=" + a.outside(),
		"ABOUT=" + fmt.Sprintf("%d %s %s", victim.Process.Pid, a.outside(), a.home),
	}
}
