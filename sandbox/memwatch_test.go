package sandbox

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const treeLimit = 96 << 20

// hog is a shell whose grandchild takes 160 MiB in steps, says so and waits.
const hog = `
import sys
x = []
for _ in range(40):
    x.append(b"\x01" * (4 << 20))
print("full", flush=True)
sys.stdin.read()
`

// startHog starts the tree and gives its root, its output and what ends it.
func startHog(t *testing.T) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `sh -c 'python3 -c "$1"; exit 0' sh "$1"; exit 0`, "sh", hog)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	return cmd, out
}

// killTree ends every process of a tree that has no namespace of its own.
func killTree(t *testing.T, root int) {
	t.Helper()
	pids, err := processTree(root)
	if err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if p, err := os.FindProcess(pid); err == nil {
			p.Kill()
		}
	}
}

func TestWatchMemoryKillsBomb(t *testing.T) {
	control, out := startHog(t)
	if b := make([]byte, 4); readAll(out, b) != nil || string(b) != "full" {
		t.Fatalf("control without a watcher: got %q, want it to fill its memory", b)
	}
	used, err := treeMemory(control.Process.Pid, treeLimit)
	if err != nil || used <= treeLimit {
		t.Errorf("control: got %d bytes, %v, want more than %d", used, err, treeLimit)
	}

	cmd, out := startHog(t)
	killed := make(chan int64, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = WatchMemory(ctx, cmd.Process.Pid, treeLimit, func(rss int64) {
		killTree(t, cmd.Process.Pid)
		killed <- rss
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case rss := <-killed:
		if rss <= treeLimit {
			t.Errorf("got killed at %d, want more than %d", rss, treeLimit)
		}
	default:
		t.Fatal("got no kill, want one")
	}
	io.Copy(io.Discard, out)
}

func readAll(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	return err
}

func TestWatchMemoryEndsWithTheTree(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	err := WatchMemory(t.Context(), cmd.Process.Pid, 1<<20, func(int64) { t.Error("got a kill, want none") })
	if err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestWatchMemoryEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := WatchMemory(ctx, os.Getpid(), 1<<40, func(int64) { t.Error("got a kill, want none") }); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestWatchInterval(t *testing.T) {
	cases := []struct {
		name       string
		room       int64
		cost, want time.Duration
	}{
		{"far away", 8 << 30, 0, watchSlowest},
		{"near", 1 << 20, 0, watchFastest},
		{"between", 512 << 20, 0, 125 * time.Millisecond},
		{"expensive to look", 1 << 20, 5 * time.Millisecond, 100 * time.Millisecond},
		// However long a look took: on a machine that the tree keeps busy each
		// takes long, and the tree grows meanwhile.
		{"very expensive to look", 1 << 20, 50 * time.Millisecond, watchSlowest},
		{"kept waiting", 1 << 20, 2 * time.Second, watchSlowest},
	}
	for _, c := range cases {
		if got := watchInterval(c.room, c.cost); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestParseMemoryFiles(t *testing.T) {
	page := int64(os.Getpagesize())
	cases := []struct {
		name, text string
		parse      func(io.Reader) (int64, error)
		want       int64
		fails      bool
	}{
		{"statm", "1234 56 7 8 0 9 0\n", parseStatm, 56 * page, false},
		{"statm of a zombie", "0 0 0 0 0 0 0\n", parseStatm, 0, false},
		{"statm empty", "", parseStatm, 0, true},
		{"rollup", "55-7f ---p 0 0 0 [rollup]\nRss:  900 kB\nPss:   12 kB\nPss_Anon: 3 kB\n", parseSmapsRollup, 12 << 10, false},
		{"rollup empty", "", parseSmapsRollup, 0, false},
		{"rollup garbage", "Pss: many kB\n", parseSmapsRollup, 0, true},
	}
	for _, c := range cases {
		got, err := c.parse(strings.NewReader(c.text))
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: got %d, %v, want %d, error %v", c.name, got, err, c.want, c.fails)
		}
	}
	if pids, err := parseChildren(strings.NewReader("12 345 \n")); err != nil || len(pids) != 2 || pids[1] != 345 {
		t.Errorf("children: got %v, %v", pids, err)
	}
	if _, err := parseChildren(strings.NewReader("12 x")); err == nil {
		t.Error("children: got no error for garbage")
	}
}

func BenchmarkTreeMemory(b *testing.B) {
	for b.Loop() {
		if _, err := treeMemory(os.Getpid(), 1<<40); err != nil {
			b.Fatal(err)
		}
	}
}
