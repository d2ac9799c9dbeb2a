package proxy

import (
	"io"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// pipes counts the pipes that this process holds.
func pipes(t testing.TB) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// A crowd of tunnels leaves nothing behind, although the runtime keeps the
// pipes of splice(2) for later.
func TestRestGivesPipesBack(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serveRaw("db.example.org", 5432, func(c net.Conn) { _, _ = io.Copy(c, c) })
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection but those asked for
	before := pipes(t)
	const crowd = 16
	var wg sync.WaitGroup
	conns := make([]net.Conn, crowd)
	for i := range conns {
		conns[i] = w.open("db.example.org", 5432, "")
		if _, err := io.WriteString(conns[i], strconv.Itoa(i%10)); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _, _ = io.ReadFull(conns[i], make([]byte, 1)) })
	}
	wg.Wait()
	if got := pipes(t) - before; got < crowd {
		t.Fatalf("control: got %d pipes more with %d tunnels, want a few for each", got, crowd)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	w.await(func() bool { return pipes(t) <= before+1 }, "the pipes are given back")
}
