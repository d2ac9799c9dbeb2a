package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The limits that the loads run into.
const (
	pids, memoryMiB, sizeMiB, inodes   = 300, 256, 16, 2000
	diskMiB, diskFiles                 = 32, 400
	connections, auditMiB, auditKept   = 1100, 1, 3
	runPatience                        = 100 * time.Second
	bombPolicy, cowPolicy, plainPolicy = "bounded", "cow", "plain"
)

// auditSecond is how many MiB of denials the record may take in a second: the
// launcher looks at its size that often.
const auditSecond = 8

// slackLayer is what a layer in memory has of files beside those that count.
const slackLayer = 16

// kinds lists every kind of load.
func (s *strain) kinds() []kind {
	list := []kind{
		{name: "nothing", do: s.nothing},
		{name: fmt.Sprintf("%d sandboxes, one after the other", s.scaled(500, 60)), do: s.sequence},
		{name: fmt.Sprintf("%d sandboxes at once", s.scaled(50, 15)), do: s.atOnce},
		{name: fmt.Sprintf("%d processes in one sandbox, one after the other", s.scaled(10000, 2000)), do: s.processes},
		{name: "as many processes at once as there can be", do: s.children},
		{name: "a fork bomb of as many, without a sandbox", do: s.bareBomb, bare: true},
		{name: "a fork bomb", do: s.bomb},
		{name: "a memory bomb", do: s.memory},
	}
	for _, place := range []string{"/tmp", "/var/tmp", "$HOME", "/dev/shm", "the copy-on-write workspace"} {
		for _, what := range []string{"bytes", "inodes"} {
			list = append(list, kind{name: fmt.Sprintf("%s of %s", what, place), do: func(ctx context.Context) (string, []string, error) { return s.fill(ctx, place, what) }})
		}
	}
	return append(list, []kind{
		{name: fmt.Sprintf("%d MiB on standard output", s.scaled(500, 64)), do: s.output},
		{name: fmt.Sprintf("%d denied requests, and a record that rotates", s.scaled(20000, 3200)), do: s.denials},
		{name: fmt.Sprintf("%d names", s.scaled(10000, 2000)), do: s.names},
		{name: fmt.Sprintf("%d connections at once", s.scaled(1000, 300)), do: s.crowd},
		{name: fmt.Sprintf("%d decisions", s.scaled(1_000_000, 200_000)), do: s.decisions},
	}...)
}

// nothing is the measure of the others.
func (s *strain) nothing(ctx context.Context) (string, []string, error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(s.scaled(3000, 1000)) * time.Millisecond):
	}
	return "", nil, ctx.Err()
}

// bounded is a policy with limits that are reached soon.
func (s *strain) bounded(name string, more string) (string, error) {
	return s.policy(name, fmt.Sprintf("limits: {pids: %d, memory: %dM, connections: %d}\nfilesystem: {home_size: %dM, tmp_size: %dM, shm_size: %dM, inodes: %d}\n%s",
		pids, memoryMiB, connections, sizeMiB, sizeMiB, sizeMiB, inodes, more))
}

// load runs the program inside with the bounded policy.
func (s *strain) load(ctx context.Context, more string, args ...string) (ended, error) {
	path, err := s.bounded(bombPolicy, more)
	if err != nil {
		return ended{}, err
	}
	return run(ctx, runPatience, func(ctx context.Context) *exec.Cmd { return s.inside(ctx, path, args...) })
}

func (s *strain) sequence(ctx context.Context) (string, []string, error) {
	path, err := s.policy(plainPolicy, "")
	if err != nil {
		return "", nil, err
	}
	var took []time.Duration
	n := s.scaled(500, 60)
	failed := 0
	for range n {
		e, err := run(ctx, runPatience, func(ctx context.Context) *exec.Cmd { return s.inside(ctx, path, "spawn", "1") })
		if err != nil {
			return "", nil, err
		}
		if e.exit != 0 {
			failed++
		}
		took = append(took, e.took)
	}
	slices.Sort(took)
	figure := fmt.Sprintf("median %s, slowest %s", ms(took[n/2]), ms(took[n-1]))
	return figure, complaint(failed > 0, "%d of %d failed", failed, n), nil
}

func (s *strain) atOnce(ctx context.Context) (string, []string, error) {
	path, err := s.policy(plainPolicy, "")
	if err != nil {
		return "", nil, err
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		beats  int
		failed []string
	)
	n := s.scaled(50, 15)
	for range n {
		wg.Go(func() {
			e, err := run(ctx, runPatience, func(ctx context.Context) *exec.Cmd { return s.inside(ctx, path, "beat", "/tmp", "2") })
			mu.Lock()
			defer mu.Unlock()
			beats += strings.Count(e.out, "\n") + 1
			if err != nil || e.exit != 0 {
				failed = append(failed, fmt.Sprintf("exit %d: %v %s", e.exit, err, e.err))
			}
		})
	}
	wg.Wait()
	return fmt.Sprintf("all began, worked for 2 s and ended; %d beats", beats), failed, nil
}

func (s *strain) processes(ctx context.Context) (string, []string, error) {
	n := s.scaled(10000, 2000)
	e, err := s.load(ctx, "", "spawn", strconv.Itoa(n))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("%s in %s", e.out, ms(e.took)), complaint(e.exit != 0 || e.out != strconv.Itoa(n), "exit %d: %s %s", e.exit, e.out, e.err), nil
}

func (s *strain) children(ctx context.Context) (string, []string, error) {
	e, err := s.load(ctx, "", "children")
	if err != nil {
		return "", nil, err
	}
	n, word, _ := strings.Cut(e.out, " ")
	got, _ := strconv.Atoi(n)
	return fmt.Sprintf("%d of %d, then %s", got, pids, word), complaint(got > pids+16 || got < pids/2 || word != "EAGAIN", "exit %d: %s %s", e.exit, e.out, e.err), nil
}

// bareBomb is the twin of the bomb: an ordinary user's under a resource limit.
func (s *strain) bareBomb(ctx context.Context) (string, []string, error) {
	seconds := s.bombSeconds()
	e, err := run(ctx, runPatience, func(ctx context.Context) *exec.Cmd {
		cmd := s.bare(ctx, filepath.Join(s.ws, "load"), "bomb", strconv.Itoa(seconds), strconv.Itoa(pids))
		cmd.SysProcAttr.Setpgid = false // it makes a session of its own, which no leader of a group can
		return cmd
	})
	if err != nil {
		return "", nil, err
	}
	return bombed(e, seconds)
}

func (s *strain) bombSeconds() int { return s.scaled(8, 3) }

// bombed judges a bomb, of which the output is how many processes it made: with
// far fewer than the limit it was none.
func bombed(e ended, seconds int) (figure string, wrong []string, err error) {
	n, _ := strconv.Atoi(e.out)
	wrong = complaint(n < pids/2, "exit %d: %s %s: not the %d processes of a bomb", e.exit, e.out, e.err, pids)
	wrong = append(wrong, complaint(e.took > time.Duration(seconds)*time.Second+20*time.Second, "it took %v to end", e.took)...)
	return fmt.Sprintf("%d processes, %d s of it", n, seconds), wrong, nil
}

func (s *strain) bomb(ctx context.Context) (string, []string, error) {
	seconds := s.bombSeconds()
	e, err := s.load(ctx, "", "bomb", strconv.Itoa(seconds))
	if err != nil {
		return "", nil, err
	}
	return bombed(e, seconds)
}

// memory: where no control group bounds it, the launcher looks now and then, and
// the tree may be past the limit by what it took between two looks.
func (s *strain) memory(ctx context.Context) (string, []string, error) {
	e, err := s.load(ctx, "", "memory", "8000")
	if err != nil {
		return "", nil, err
	}
	lines := strings.Fields(e.out)
	got, most := 0, memoryMiB*3
	if len(lines) > 0 {
		got, _ = strconv.Atoi(lines[len(lines)-1])
	}
	wrong := complaint(got > most, "it had %d MiB, the limit is %d", got, memoryMiB)
	if e.exit == 0 || got < memoryMiB/2 {
		wrong = append(wrong, fmt.Sprintf("it ended with %d at %d MiB: %s", e.exit, got, e.err))
	}
	return fmt.Sprintf("ended with %d at %d MiB; the limit is %d", e.exit, got, memoryMiB), wrong, nil
}

// fill fills one place. A copy-on-write layer in memory says ENOSPC itself, one
// on disk ends the run.
func (s *strain) fill(ctx context.Context, place, what string) (string, []string, error) {
	more, dir, size, files := "", place, sizeMiB, inodes
	switch place {
	case "$HOME":
		dir = s.home
	case "the copy-on-write workspace":
		more, dir, size, files = "workspace: {access: cow}\n", ".", diskMiB, diskFiles
	}
	path, err := s.policy(cowPolicy, s.fillPolicy(more))
	if err != nil {
		return "", nil, err
	}
	e, err := run(ctx, runPatience, func(ctx context.Context) *exec.Cmd { return s.inside(ctx, path, "fill", dir, what) })
	if err != nil {
		return "", nil, err
	}
	if e.exit == 125 && strings.Contains(e.err, "limits.disk") {
		return "the run was ended: " + e.err[strings.LastIndex(e.err, "the copy"):], nil, nil
	}
	var gotFiles, gotBytes int64
	var word string
	if n, _ := fmt.Sscan(e.out, &gotFiles, &gotBytes, &word); n != 3 {
		return "", nil, fmt.Errorf("%w: exit %d: %s %s", errNotAsked, e.exit, e.out, e.err)
	}
	if more != "" {
		files += slackLayer
	}
	over := gotBytes > int64(size)<<20 || what == "inodes" && gotFiles > int64(files)
	if what == "bytes" {
		return fmt.Sprintf("%d MiB of %d, then %s", gotBytes>>20, size, word), complaint(over || word != "ENOSPC", "%s", e.out), nil
	}
	return fmt.Sprintf("%d files of %d, then %s", gotFiles, files, word), complaint(over || word != "ENOSPC", "%s", e.out), nil
}

func (s *strain) fillPolicy(more string) string {
	disk := ""
	if more != "" {
		disk = fmt.Sprintf("limits: {disk: %dM, disk_files: %d}\n", diskMiB, diskFiles)
	}
	return fmt.Sprintf("%sfilesystem: {home_size: %dM, tmp_size: %dM, shm_size: %dM, inodes: %d}\n%s", disk, sizeMiB, sizeMiB, sizeMiB, inodes, more)
}

// output floods a reader that is slower than the writer.
func (s *strain) output(ctx context.Context) (string, []string, error) {
	path, err := s.policy(plainPolicy, "")
	if err != nil {
		return "", nil, err
	}
	mib := s.scaled(500, 64)
	var got counter
	var most int64
	e, err := run(ctx, runPatience, func(ctx context.Context) *exec.Cmd {
		cmd := s.inside(ctx, path, "print", strconv.Itoa(mib))
		cmd.Stdout = &got
		got.each = func() {
			if got.n%(8<<20) < 32<<10 {
				most = max(most, resident(cmd.Process.Pid))
			}
		}
		return cmd
	})
	if err != nil {
		return "", nil, err
	}
	wrong := complaint(e.exit != 0 || got.n != int64(mib)<<20, "exit %d after %d bytes", e.exit, got.n)
	return fmt.Sprintf("all arrived; the launcher held %d MiB at most", most>>20), append(wrong, complaint(most > 200<<20, "the launcher held %d MiB", most>>20)...), nil
}

// counter counts what is written to it.
type counter struct {
	n    int64
	each func()
}

func (c *counter) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	if c.each != nil {
		c.each()
	}
	return len(b), nil
}

// resident is the memory of a process.
func resident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(f[1], 10, 64)
	return n * int64(os.Getpagesize())
}

// denials floods the record. It is bounded, and verifies.
func (s *strain) denials(ctx context.Context) (string, []string, error) {
	n := s.scaled(20000, 3200)
	file := filepath.Join(s.home, "flood", "audit.jsonl")
	e, err := s.load(ctx, fmt.Sprintf("audit: {file: %q, max_size: %dM, keep: %d}\n", file, auditMiB, auditKept), "denied", strconv.Itoa(n), "198.51.100.1", "80")
	if err != nil {
		return "", nil, err
	}
	wrong := complaint(e.exit != 0 || e.out != fmt.Sprintf("%d 0", n), "exit %d: %s %s", e.exit, e.out, e.err)
	var bytes int64
	files, _ := filepath.Glob(filepath.Join(s.home, "flood", "audit*"))
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			bytes += info.Size()
		}
	}
	wrong = append(wrong, complaint(len(files) == 0 || len(files) > auditKept+1 || bytes > (auditKept+1)*(auditMiB+auditSecond)<<20, "the record is %d files of %d bytes", len(files), bytes)...)
	v, err := run(ctx, runPatience, func(ctx context.Context) *exec.Cmd { return s.bare(ctx, s.Bin, "audit", "verify", file) })
	if err != nil {
		return "", nil, err
	}
	if v.exit != 0 {
		wrong = append(wrong, fmt.Sprintf("audit verify: exit %d: %s %s", v.exit, v.out, v.err))
	}
	return fmt.Sprintf("%d a second; %d files of the record, %d MiB", int(float64(n)/e.took.Seconds()), len(files), bytes>>20), wrong, nil
}

func (s *strain) names(ctx context.Context) (string, []string, error) {
	n := s.scaled(10000, 2000)
	e, err := s.load(ctx, "audit: {max_size: 4M, keep: 1}\n", "names", strconv.Itoa(n))
	if err != nil {
		return "", nil, err
	}
	var answered, lost int
	if _, err := fmt.Sscan(e.out, &answered, &lost); err != nil {
		return "", nil, fmt.Errorf("%w: exit %d: %s %s", errNotAsked, e.exit, e.out, e.err)
	}
	return fmt.Sprintf("%d answered, %d a second", answered, int(float64(answered)/e.took.Seconds())), complaint(answered < n*95/100, "%d of %d answered", answered, n), nil
}

// crowd holds many connections to a server outside, with a limit above and with
// one below.
func (s *strain) crowd(ctx context.Context) (string, []string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	defer l.Close()
	go echo(l)
	port := l.Addr().(*net.TCPAddr).Port
	n := s.scaled(1000, 300)
	var got [2]int
	for i, limit := range []int{connections, 100} {
		path, err := s.policy("crowd", fmt.Sprintf(`limits: {connections: %d}
network:
  upstream: {connections_per_host: 4096}
  private: [{cidr: 127.0.0.1, ports: [%d], reason: the server of the proof}]
  hosts: {echo.test: [127.0.0.1]}
  rules: [{name: echo, host: echo.test, ports: [%d], protocol: tcp}]
`, limit, port, port))
		if err != nil {
			return "", nil, err
		}
		e, err := run(ctx, runPatience, func(ctx context.Context) *exec.Cmd {
			return s.inside(ctx, path, "connect", strconv.Itoa(n), "echo.test", strconv.Itoa(port))
		})
		if err != nil {
			return "", nil, err
		}
		if got[i], err = strconv.Atoi(e.out); err != nil {
			return "", nil, fmt.Errorf("%w: exit %d: %s %s", errNotAsked, e.exit, e.out, e.err)
		}
	}
	wrong := complaint(got[0] != n, "%d of %d served below the limit", got[0], n)
	return fmt.Sprintf("%d served with a limit of %d, %d with one of 100", got[0], connections, got[1]), append(wrong, complaint(got[1] > 100, "%d served with a limit of 100", got[1])...), nil
}

func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			_, _ = io.Copy(c, c)
		}()
	}
}

func (s *strain) decisions(context.Context) (string, []string, error) {
	d, err := decide(s.scaled(1_000_000, 200_000))
	if err != nil {
		return "", nil, err
	}
	wrong := complaint(d.wrong > 0, "%d decisions were wrong", d.wrong)
	wrong = append(wrong, complaint(d.grown > 16<<20, "the heap grew by %d bytes", d.grown)...)
	return fmt.Sprintf("%d ns each by 1,000 rules, %d allowed", d.each.Nanoseconds(), d.allowed), wrong, nil
}

// complaint is a list of one when something is so.
func complaint(so bool, format string, args ...any) []string {
	if !so {
		return nil
	}
	return []string{fmt.Sprintf(format, args...)}
}
