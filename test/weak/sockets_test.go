package weak

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// localSockets connects to a server outside and to one inside by relative paths,
// and to a TCP server outside.
const localSockets = `
import os, socket, struct, sys
def told(name, attempt):
    try: print(name, attempt())
    except OSError as e: print(name, e.errno)
def outside():
    os.chdir(os.environ["SERVED"])
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("s"); return s.recv(9).decode()
def inside():
    os.chdir(os.environ["TMPDIR"])
    l = socket.socket(socket.AF_UNIX); l.bind("own"); l.listen(1)
    with socket.socket(socket.AF_UNIX) as c:
        c.connect("own")
        a, _ = l.accept()
        pid = struct.unpack("3i", a.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return "ours" if pid == os.getpid() else "another's"
def tcp():
    socket.create_connection(("127.0.0.1", int(os.environ["TCP"])), 20); return "connected"
def raced():
    # The descriptor is a local socket when it is looked at and may be a TCP one when the kernel goes on.
    import threading
    local, far = socket.socket(socket.AF_UNIX), socket.socket()
    fd, swaps, hit = os.dup(local.fileno()), 0, False
    def swap():
        nonlocal swaps
        while True:
            os.dup2(far.fileno(), fd); os.dup2(local.fileno(), fd); swaps += 1
    threading.Thread(target=swap, daemon=True).start()
    import ctypes
    libc = ctypes.CDLL(None)
    address = struct.pack("=HHI8x", socket.AF_INET, socket.htons(int(os.environ["TCP"])), 0x0100007f)
    while not hit and swaps < int(os.environ["SWAPS"]): hit = libc.connect(fd, address, 16) == 0
    return "connected" if hit else "refused"
for name in ("outside", "inside", "tcp", "raced"): told(name, globals()[name])
`

// TestLocalSockets: with the consent a local socket is connected by the command
// itself, also where connect(2) is mediated, and TCP stays shut.
func TestLocalSockets(t *testing.T) {
	b := newBench(t)
	b.RequireCommands(t, []string{"python3"})
	served := b.Dir(t, "served")
	l, err := net.Listen("unix", filepath.Join(served, "s"))
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []net.Listener{l, tcp} {
		defer func() { _ = l.Close() }()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("outside"))
				_ = c.Close()
			}
		}()
	}
	if err := os.Chmod(filepath.Join(served, "s"), 0o666); err != nil { // #nosec: for the account of the test
		t.Fatal(err)
	}
	b.Write(t, filepath.Join(b.work, "sockets.py"), localSockets)
	env := []string{"SERVED=" + served, fmt.Sprintf("TCP=%d", tcp.Addr().(*net.TCPAddr).Port)}
	record := filepath.Join(b.Home, "audit.jsonl")
	policy := b.PolicyFile(t, "sockets", strings.Replace(base, "capture]", "capture, sockets]", 1)+files+
		"network: {rules: [{name: one, host: example.org}]}\naudit: {file: \""+record+"\"}\n")
	plain := b.PolicyFile(t, "plain", base+files+"network: {rules: [{name: one, host: example.org}]}\n")
	argv := append(append([]string{"env"}, env...), "python3", "sockets.py")
	bare := b.Bare(b.work, append([]string{"env", "SWAPS=1000000"}, argv...)...)
	bare.Env = append(bare.Env, "TMPDIR="+b.Dir(t, "tmp"))
	if got := wraptest.Run(t, bare, limit); got.Out != "outside outside\ninside ours\ntcp connected\nraced connected\n" {
		t.Fatalf("control: got %q (%s), want everything to work bare", got.Out, got.Err)
	}
	for name, cmd := range map[string]struct{ policy, want string }{
		"consent":    {policy, "outside outside\ninside ours\ntcp 13\nraced refused\n"},
		"no consent": {plain, "outside 1\ninside 1\ntcp 13\nraced 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got := wraptest.Run(t, b.wrap(cmd.policy, append([]string{"env", "SWAPS=2000"}, argv...)...), limit)
			harness.Require(t, strings.Contains(got.Err, "TCP only to the proxy"), "taking sockets of another process")
			if got.Out != cmd.want {
				t.Errorf("got %q (%s), want %q", got.Out, got.Err, cmd.want)
			}
		})
	}
	events, err := audit.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(events, func(e audit.Event) bool {
		return e.Kind == audit.KindLaunch && slices.Equal(e.Degraded, []string{"namespaces", "sockets"}) && strings.Contains(e.Reason, "EVERY one outside")
	}) {
		t.Errorf("audit: got %+v, want both layers and what is reached", events)
	}
}
