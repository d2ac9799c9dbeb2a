package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// limit bounds every command, so that a hang is a failure.
const limit = 5 * time.Minute

// shop is where commands are run bare, in bubblewrap and in the sandbox.
type shop struct {
	bin    string // hermes-wrap
	self   string // this program, readable inside
	root   string // everything below goes at the end
	dir    string // the workspace
	policy string // everything on, no rule reaches anything
	memory *bufio.ReadWriter
}

func newShop(bin string) (*shop, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp(home, "hermes-bench-")
	if err != nil {
		return nil, err
	}
	s := &shop{bin: bin, root: root, dir: filepath.Join(root, "work"), policy: filepath.Join(root, "policy.yaml")}
	s.self = filepath.Join(s.dir, "bench")
	if err := errors.Join(os.Mkdir(s.dir, 0o755), copyProgram("/proc/self/exe", s.self)); err != nil {
		return nil, err
	}
	text := "version: 1\nname: bench\nextends: [builtin:strict]\nnetwork:\n  rules:\n    - {name: api, host: api.example.org, access: read-only}\n"
	if err := os.WriteFile(s.policy, []byte(text), 0o644); err != nil {
		return nil, err
	}
	if fd, err := strconv.Atoi(os.Getenv(envMemory)); err == nil {
		f := os.NewFile(uintptr(fd), "memory")
		c, err := net.FileConn(f)
		if err != nil {
			return nil, err
		}
		_ = f.Close()
		s.memory = bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
	}
	return s, nil
}

func (s *shop) close() { _ = os.RemoveAll(s.root) }

// inside gives argv as run in the sandbox.
func (s *shop) inside(policy string, argv ...string) []string {
	return append([]string{s.bin, "--policy", policy, "--"}, argv...)
}

// command makes a command in the workspace.
func (s *shop) command(argv []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = s.dir
	cmd.WaitDelay = time.Second
	return cmd
}

// output runs a command to its end.
func (s *shop) output(argv ...string) (string, error) {
	cmd := s.command(argv)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Start(); err != nil {
		return "", err
	}
	t := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	defer t.Stop()
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("run %q: %w: %s", filepath.Base(argv[0]), err, lastLine(complaint.String()))
	}
	return out.String(), nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// numbers runs a probe that prints numbers, one a line.
func (s *shop) numbers(argv ...string) (series, error) {
	out, err := s.output(argv...)
	if err != nil {
		return nil, err
	}
	var all series
	for _, word := range strings.Fields(out) {
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil, fmt.Errorf("read what %q printed: %w", argv, err)
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("run %q: no output", argv)
	}
	return all, nil
}

// session is a command that is talked to line by line.
type session struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	end *time.Timer
}

func (s *shop) start(env []string, argv ...string) (*session, error) {
	cmd := s.command(argv)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	return &session{cmd, in, bufio.NewReader(out), end}, nil
}

// line waits for the next line.
func (c *session) line() (string, error) {
	text, err := c.out.ReadString('\n')
	return strings.TrimSpace(text), err
}

// ask sends a line and waits for one.
func (c *session) ask(text string) (string, error) {
	if _, err := fmt.Fprintln(c.in, text); err != nil {
		return "", err
	}
	return c.line()
}

// stop ends the command; how it ends does not matter.
func (c *session) stop() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
	c.end.Stop()
}
