package hostile

import (
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// TestDescriptors: what the caller had open is no way out. The caller leaves a
// directory of the host on 7, a file that is open for writing on 8, a
// connection on 9; and in a second launch a directory on standard input, which
// Python refuses, so that there a shell moves it to 6 first.
func TestDescriptors(t *testing.T) {
	host := harness.NewHost(t)
	host.RequireWrapper(t)
	host.RequireCommands(t, []string{"bash", "python3", "git"})
	target, work := host.Dir(t, "target"), host.Dir(t, "work")
	host.Write(t, filepath.Join(target, "secret"), "canary-descriptor\n")
	host.Write(t, filepath.Join(host.Home, "secret"), "canary-above\n")
	probe := filepath.Join(work, "descriptors.py")
	host.Write(t, probe, text(t, "testdata/descriptors.py"))
	open := `exec "$@" 7<"$TARGET" 8>>"$TARGET/log" 9<>/dev/tcp/127.0.0.1/` + strconv.Itoa(listen(t))
	run := func(script string, wrapper []string) harness.Result {
		r, err := host.Run(harness.Command{
			Argv: append(append([]string{"bash", "-c", script, "caller"}, wrapper...), "bash", "-c", `exec python3 "$0" 6<&0 </dev/null`, probe),
			Dir:  work, Limit: time.Minute, Env: []string{"TARGET=" + target},
		})
		if err != nil {
			t.Fatalf("run: %v\n%s", err, r.Stderr)
		}
		return r
	}
	wrapper := host.Wrapped("strict", "", nil)
	t.Run("standard input", func(t *testing.T) {
		script := `exec "$@" <"$TARGET"`
		if r := run(script, nil); !hasWay(r.Stdout, "6_read_below") {
			t.Errorf("bare: got %q (%s), want this way to work", r.Stdout, r.Stderr)
		}
		if r := run(script, wrapper); r.Exit != 125 || r.Stdout != "" || !strings.Contains(r.Stderr, "refuse stdin") {
			t.Errorf("inside: got exit %d, %q (%s), want a refusal", r.Exit, r.Stdout, r.Stderr)
		}
	})
	bare, wrapped := run(open, nil), run(open, wrapper)
	if bare.Exit != 0 || wrapped.Exit != 0 {
		t.Fatalf("got exit %d bare and %d wrapped, want 0\n%s%s", bare.Exit, wrapped.Exit, bare.Stderr, wrapped.Stderr)
	}
	for _, way := range []string{"7_read_below", "7_read_above", "7_enter", "7_through_proc", "7_create", "8_write", "9_talk"} {
		t.Run(way, func(t *testing.T) {
			if !hasWay(bare.Stdout, way) {
				t.Errorf("bare: got %q, want this way to work", bare.Stdout)
			}
			if hasWay(wrapped.Stdout, way) {
				t.Errorf("inside: got %q, want this way closed", wrapped.Stdout)
			}
		})
	}
	if strings.Contains(wrapped.Stdout, "canary") {
		t.Errorf("inside: got %q, want no canary", wrapped.Stdout)
	}
}

func hasWay(output, way string) bool {
	return slices.ContainsFunc(strings.Split(output, "\n"), func(line string) bool {
		name, _, _ := strings.Cut(line, " ")
		return name == way
	})
}

// listen takes connections until the test ends.
func listen(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}
