package corpus

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const limit = time.Minute

// scene is a workspace with the attacker in it, and what it aims at outside.
type scene struct {
	wraptest.World
	dir              string
	port, port6, udp int
	addrs            []string // of the host's interfaces
}

func newScene(t *testing.T) scene {
	t.Helper()
	s := scene{World: wraptest.New(t)}
	s.dir = s.Dir(t, "ws")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(s.dir, "attacker")
	s.Write(t, program, string(text))
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	s.port, s.port6, s.udp = tcpTarget(t, "tcp4", "0.0.0.0:0"), tcpTarget(t, "tcp6", "[::]:0"), udpTarget(t)
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			s.addrs = append(s.addrs, n.IP.String())
		}
	}
	return s
}

func tcpTarget(t *testing.T, network, addr string) int {
	t.Helper()
	l, err := net.Listen(network, addr)
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
			go func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 1))
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s", canary)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func udpTarget(t *testing.T) int {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			_, from, err := c.ReadFromUDP(b)
			if err != nil {
				return
			}
			_, _ = c.WriteToUDP([]byte(canary), from)
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).Port
}

// outcomes runs attempts and gives what became of each.
func outcomes(t *testing.T, cmd *exec.Cmd) map[string]string {
	t.Helper()
	r := wraptest.Run(t, cmd, limit)
	if r.Exit != 0 {
		t.Fatalf("attacker: got exit %d, want 0\n%s%s", r.Exit, r.Out, r.Err)
	}
	out := map[string]string{}
	for line := range strings.Lines(r.Out) {
		name, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[name] = what
	}
	return out
}

// TestNetwork makes each attempt without the sandbox, where it gets through,
// and inside, where it does not.
func TestNetwork(t *testing.T) {
	s := newScene(t)
	open := s.PolicyFile(t, "open", "version: 1\nextends: [builtin:strict]\nworkspace: {path: ., access: write}\n"+
		"network: {rules: [{name: one, host: allowed.test}]}\n")
	local := func(path string) string {
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return path
	}
	s.Dir(t, "elsewhere")
	local(filepath.Join(s.Home, "elsewhere", "socket"))
	port, port6 := strconv.Itoa(s.port), strconv.Itoa(s.port6)
	attempts := []string{
		"loopback=tcp,127.0.0.1:" + port, "loopback_other=tcp,127.9.9.9:" + port, "loopback6=tcp,[::1]:" + port6,
		"localhost=tcp,localhost:" + port, "localhost_upper=tcp,LOCALHOST:" + port,
		"unspecified=tcp,0.0.0.0:" + port, "unspecified6=tcp,[::]:" + port6, "mapped=tcp,[::ffff:127.0.0.1]:" + port,
		"udp=udp,127.0.0.1:" + strconv.Itoa(s.udp), "relay=relay,127.0.0.1:" + port,
		"unixgram_home=unixgram," + local(filepath.Join(s.Home, "datagrams")),
		"unixgram_granted=unixgram," + local(filepath.Join(s.dir, "datagrams")),
		"unixgram_relative=unixgram,datagrams", "sockets=sockets,/run:/var/run:" + filepath.Join(s.Home, "elsewhere"),
	}
	for i, a := range s.addrs {
		p := s.port
		if strings.Contains(a, ":") {
			p = s.port6
		} else {
			attempts = append(attempts, fmt.Sprintf("udp_address%d=udp,%s:%d", i, a, s.udp))
		}
		attempts = append(attempts, fmt.Sprintf("address%d=tcp,%s", i, net.JoinHostPort(a, strconv.Itoa(p))))
	}
	argv := append([]string{"./attacker", "reach"}, attempts...)
	outside := outcomes(t, s.Bare(s.dir, argv...))
	inside := outcomes(t, s.Wrap(s.dir, open, argv...))
	for _, a := range attempts {
		name, what, _ := strings.Cut(a, "=")
		t.Run(name, func(t *testing.T) {
			if outside[name] != "ok" {
				t.Fatalf("control: %s: got %q, want ok", what, outside[name])
			}
			if got := inside[name]; got == "ok" || got == "" {
				t.Errorf("inside: %s: got %q, want it refused", what, got)
			}
		})
	}
}

// What nobody answers on this machine is refused at once and not left to time
// out: datagrams, and whole address families (corpus C09, C16, C27).
func TestRefusedAtOnce(t *testing.T) {
	s := newScene(t)
	attempts := []string{
		"quic=udp,192.0.2.99:443", "quic6=udp,[2001:db8::1]:443", "multicast=udp,224.0.0.251:5353", "multicast6=udp,[ff02::1%lo]:9",
		"dns_elsewhere=udp,203.0.113.9:853", "gateway=tcp,10.0.2.2:" + strconv.Itoa(s.port), "link_local=tcp,[fe80::1%lo]:80",
		"unique_local=tcp,[fd00::9]:80", "docker=tcp,host.docker.internal:" + strconv.Itoa(s.port), "metadata=tcp,169.254.169.254:80",
	}
	inside := outcomes(t, s.Wrap(s.dir, "strict", append([]string{"./attacker", "reach"}, attempts...)...))
	for _, a := range attempts {
		name, what, _ := strings.Cut(a, "=")
		// Nobody refuses a datagram to a group; it ends in the sandbox's own loopback.
		late := strings.Contains(inside[name], "timeout") && !strings.HasPrefix(name, "multicast")
		if got := inside[name]; got == "ok" || got == "" || late {
			t.Errorf("%s: got %q, want it refused at once", what, got)
		}
	}
	// The control: what the sandbox itself serves answers.
	if got := outcomes(t, s.Wrap(s.dir, "strict", "./attacker", "reach", "own=relay,127.0.0.1:1"))["own"]; !strings.Contains(got, "no canary") {
		t.Errorf("control: got %q, want the relay inside to be reached", got)
	}
}

// A listener inside is nobody's outside, and the launcher and the proxy listen
// on nothing of the host (corpus C29, C35).
func TestNothingListensOutside(t *testing.T) {
	s := newScene(t)
	for _, c := range []struct {
		name string
		cmd  func(argv ...string) *exec.Cmd
		open bool
	}{
		{"control", func(argv ...string) *exec.Cmd { return s.Bare(s.dir, argv...) }, true},
		{"inside", func(argv ...string) *exec.Cmd { return s.Wrap(s.dir, "strict", argv...) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := freePort(t)
			cmd := c.cmd("./attacker", "reach", "listen=listen,0.0.0.0:"+port)
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
			defer func() { _ = in.Close(); _ = cmd.Wait() }()
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "listening\n" {
				t.Fatalf("got %q, %v, want it to listen", line, err)
			}
			for _, host := range append([]string{"127.0.0.1", "::1"}, s.addrs...) {
				if c.open && host != "127.0.0.1" {
					continue
				}
				conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), patience)
				if err != nil {
					if c.open {
						t.Errorf("%s: got %v, want a connection", host, err)
					}
					continue
				}
				b, _ := io.ReadAll(conn)
				_ = conn.Close()
				if got := string(b) == canary; got != c.open {
					t.Errorf("%s: got %q, want it reached: %v", host, b, c.open)
				}
			}
			if !c.open {
				noListeners(t, cmd.Process.Pid)
			}
		})
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// noListeners fails where a process of the run holds a socket that listens in
// the host's network.
func noListeners(t *testing.T, launcher int) {
	t.Helper()
	listening := map[string]string{} // inode to line
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		text, err := os.ReadFile("/proc/self/net/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && (f[3] == "0A" || strings.HasPrefix(file, "udp")) {
				listening[f[9]] = file + " " + f[1]
			}
		}
	}
	seen := 0
	for _, pid := range family(t, launcher) {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		for _, e := range entries {
			to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name()))
			inode, ok := strings.CutPrefix(to, "socket:[")
			if !ok {
				continue
			}
			seen++
			if what, ok := listening[strings.TrimSuffix(inode, "]")]; ok {
				args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				t.Errorf("process %d (%q): got the socket %s in the host's network, want none", pid, args, what)
			}
		}
	}
	if seen == 0 && os.Getuid() == 0 {
		t.Error("control: got no socket of the run at all, want its connections to each other")
	}
}

// family gives a process and its descendants.
func family(t *testing.T, root int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	all := []int{root}
	for grown := true; grown; {
		grown = false
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || slices.Contains(all, pid) {
				continue
			}
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil {
				continue
			}
			f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
			if parent, _ := strconv.Atoi(f[1]); slices.Contains(all, parent) {
				all, grown = append(all, pid), true
			}
		}
	}
	return all
}
