package escape

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// victimArg makes this program the victim: an ordinary process outside, with a
// secret in every place where a process can have one. It watches itself.
const victimArg = "escape-victim"

// spoils is where the victim's secrets lie.
type spoils struct {
	Environ, Memory, Socket, Shared, File, Local string // the tokens
	Outside                                      string
}

// victim is the worker's side.
type victim struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	PID  int
	Key  int // of the SysV segment
	ID   int // of the SysV segment
	stat string
}

// startVictim starts the victim of one run as the run's account.
func startVictim(program string, p *place, a account) (*victim, error) {
	s := spoils{
		Environ: p.tokens.fresh("victim's environment"), Memory: p.tokens.fresh("victim's memory"), Socket: p.tokens.fresh("victim's abstract socket"),
		Shared: p.tokens.fresh("victim's segment"), File: p.tokens.fresh("victim's file in /dev/shm"), Local: p.tokens.fresh("victim's local socket"),
		Outside: p.Outside,
	}
	cmd := exec.Command(program, victimArg) // #nosec: ourselves
	cmd.Dir, cmd.Env = p.Outside, []string{"PATH=" + binPath, "VICTIM_SECRET=" + s.Environ}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential(), Setsid: true, Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the victim: %w", err)
	}
	v := &victim{cmd: cmd, in: in, out: bufio.NewReader(out), PID: cmd.Process.Pid}
	var ready struct {
		Key, ID int
		Error   string
	}
	err = json.NewEncoder(in).Encode(s)
	if err == nil {
		err = v.answer(&ready)
	}
	if err == nil && ready.Error != "" {
		err = errors.New(ready.Error)
	}
	if err != nil {
		v.end()
		return nil, fmt.Errorf("start the victim: %w", err)
	}
	v.Key, v.ID, v.stat = ready.Key, ready.ID, v.state()
	return v, nil
}

func (v *victim) answer(to any) error {
	line := make(chan error, 1)
	go func() {
		b, err := v.out.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(b, to)
		}
		line <- err
	}()
	select {
	case err := <-line:
		return err
	case <-time.After(5 * time.Second):
		return errors.New("no answer")
	}
}

// state is what the kernel says of it that must not change.
func (v *victim) state() string {
	var b strings.Builder
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.PID))
	if err != nil {
		return "gone"
	}
	if end := bytes.LastIndexByte(stat, ')'); end >= 0 {
		f := bytes.Fields(stat[end+1:])
		// Parent, group, session, nice, real-time priority, policy.
		for _, i := range []int{1, 2, 3, 16, 37, 38} {
			fmt.Fprintf(&b, "%s ", f[i])
		}
		if s := f[0][0]; s == 'T' || s == 't' || s == 'Z' || s == 'X' {
			fmt.Fprintf(&b, "state %c ", s)
		}
	}
	for _, name := range []string{"limits", "oom_score_adj", "comm", "coredump_filter"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", v.PID, name))
		b.Write(text)
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.PID))
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "TracerPid:") || strings.HasPrefix(line, "Cpus_allowed:") || strings.HasPrefix(line, "Seccomp:") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// settle waits until no signal is on its way to the victim.
func (v *victim) settle() {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		pending := false
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.PID))
		for line := range strings.Lines(string(status)) {
			name, mask, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			pending = pending || (name == "SigPnd" || name == "ShdPnd") && strings.Trim(mask, "0") != ""
		}
		if !pending {
			return
		}
	}
}

// touched says what happened to it.
func (v *victim) touched() []string {
	v.settle()
	if now := v.state(); now != v.stat {
		if now == "gone" || strings.Contains(now, "state ") {
			return []string{"the victim is dead or stopped"}
		}
		return []string{"the victim's state changed"}
	}
	var said []string
	if _, err := io.WriteString(v.in, "check\n"); err != nil {
		return []string{"the victim is dead"}
	}
	if err := v.answer(&said); err != nil {
		return []string{"the victim does not answer: " + err.Error()}
	}
	return said
}

func (v *victim) end() {
	_ = v.in.Close()
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
	if v.ID > 0 {
		_, _ = unix.SysvShmCtl(v.ID, unix.IPC_RMID, nil)
	}
	_ = os.Remove(shmFile(v.PID))
}

func shmFile(pid int) string { return fmt.Sprintf("/dev/shm/canary-%d", pid) }

// serveVictim is the victim.
func serveVictim() int {
	in := bufio.NewReader(os.Stdin)
	var s spoils
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err != nil {
		return 1
	}
	out := json.NewEncoder(os.Stdout)
	w, key, id, err := newWatch(s)
	if err != nil {
		_ = out.Encode(struct{ Error string }{err.Error()})
		return 1
	}
	_ = out.Encode(struct{ Key, ID int }{key, id})
	for {
		if _, err := in.ReadBytes('\n'); err != nil {
			return 0
		}
		_ = out.Encode(w.changes())
	}
}

// marker is the signal that the victim sends to itself: when it comes, all that
// were sent before have come, since the runtime hands them on by number.
const marker = syscall.Signal(64)

// watch is what the victim looks after.
type watch struct {
	memory  []byte
	shared  []byte
	outside string
	// What should be there is kept as sums: who overwrites a secret wherever it
	// is found would overwrite what it is compared with.
	sums    map[string][sha256.Size]byte
	opened  *os.File
	marked  chan struct{}
	mu      sync.Mutex
	happens []string
}

func (w *watch) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.happens = append(w.happens, what)
}

func newWatch(s spoils) (*watch, int, int, error) {
	w := &watch{marked: make(chan struct{}, 1), memory: []byte(s.Memory), outside: s.Outside, sums: map[string][sha256.Size]byte{}}
	for name, token := range map[string]string{"memory": s.Memory, "environment": s.Environ, "segment": s.Shared, "file in /dev/shm": s.File} {
		w.sums[name] = sha256.Sum256([]byte(token))
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	go func() {
		for sig := range signals {
			if sig == marker {
				w.marked <- struct{}{}
				continue
			}
			// The Go runtime sends the first to itself, and the second comes of a
			// client that does not wait for its answer.
			if sig != syscall.SIGURG && sig != syscall.SIGPIPE {
				w.note("the victim got " + sig.String())
			}
		}
	}()
	var err error
	if w.opened, err = os.Open(filepath.Join(s.Outside, "secret")); err != nil {
		return nil, 0, 0, err
	}
	for address, token := range map[string]string{fmt.Sprintf("@canary-%d", os.Getpid()): s.Socket, filepath.Join(s.Outside, "socket"): s.Local} {
		if err := w.listen(address, token); err != nil {
			return nil, 0, 0, err
		}
	}
	path := shmFile(os.Getpid())
	if err := errors.Join(os.WriteFile(path, []byte(s.File), 0o666), os.Chmod(path, 0o666)); err != nil { // #nosec: a canary
		return nil, 0, 0, err
	}
	key := 0x43000000 | os.Getpid()&0xffffff
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o666)
	if errors.Is(err, unix.ENOSYS) {
		return w, 0, 0, nil // a kernel without System V's segments
	}
	if err != nil {
		return nil, 0, 0, fmt.Errorf("shmget: %w", err)
	}
	if w.shared, err = unix.SysvShmAttach(id, 0, 0); err != nil {
		return nil, 0, 0, fmt.Errorf("shmat: %w", err)
	}
	copy(w.shared, s.Shared)
	return w, key, id, nil
}

func (w *watch) listen(address, token string) error {
	l, err := net.Listen("unix", address)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(address, "@") {
		if err := os.Chmod(address, 0o666); err != nil { // #nosec: a canary
			return err
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.note("a connection to the victim's socket " + filepath.Base(address))
			_, _ = io.WriteString(c, token+"\n")
			_ = c.Close()
		}
	}()
	return nil
}

// changes says what happened since the last time.
func (w *watch) changes() []string {
	// A connection that waits is accepted before one that is made now.
	for _, address := range []string{fmt.Sprintf("@canary-%d", os.Getpid()), filepath.Join(w.outside, "socket")} {
		w.settle(address)
	}
	if syscall.Kill(os.Getpid(), marker) == nil {
		<-w.marked
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.happens
	w.happens = []string{}
	file, _ := os.ReadFile(shmFile(os.Getpid()))
	now := map[string][]byte{"memory": w.memory, "environment": []byte(os.Getenv("VICTIM_SECRET")), "file in /dev/shm": file}
	if w.shared != nil {
		now["segment"], _, _ = bytes.Cut(w.shared, []byte{0})
	}
	for name, text := range now {
		if sha256.Sum256(text) != w.sums[name] {
			out = append(out, "the victim's "+name+" changed")
		}
	}
	if _, err := w.opened.Stat(); err != nil {
		out = append(out, "the victim's open file is gone")
	}
	return out
}

// settle makes a connection of our own and takes it off the list.
func (w *watch) settle(address string) {
	what := "a connection to the victim's socket " + filepath.Base(address)
	c, err := net.Dial("unix", address)
	if err != nil {
		w.note("the victim's socket is gone: " + filepath.Base(address))
		return
	}
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.happens) - 1; i >= 0; i-- {
		if w.happens[i] == what {
			w.happens = append(w.happens[:i], w.happens[i+1:]...)
			return
		}
	}
}
