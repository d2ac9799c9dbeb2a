package weak

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// outside is what the attacks aim at.
type outside struct {
	port     int // of a TCP and a UDP socket on the loopback
	socket   string
	datagram string
	segment  int
	victim   *exec.Cmd
	secret   string
}

func newOutside(t *testing.T, b bench) outside {
	t.Helper()
	o := outside{secret: filepath.Join(b.Home, "secret")}
	b.Write(t, o.secret, "s3cret")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.port = l.Addr().(*net.TCPAddr).Port
	o.socket, o.datagram = filepath.Join(b.Home, "s"), filepath.Join(b.Home, "d")
	u, err := net.Listen("unix", o.socket)
	if err != nil {
		t.Fatal(err)
	}
	d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: o.datagram, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{o.socket, o.datagram} {
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	o.segment, err = unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Fatal(err)
	}
	o.victim = b.Bare(b.work, "sleep", "1000")
	if err := o.victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = unix.SysvShmCtl(o.segment, unix.IPC_RMID, nil)
		_ = o.victim.Process.Kill()
		_ = o.victim.Wait()
		_ = l.Close()
		_ = u.Close()
		_ = d.Close()
	})
	return o
}

// attack puts the program where it is visible inside.
func (b bench) attack(t *testing.T) string {
	t.Helper()
	path := filepath.Join(b.work, "attack")
	program, err := os.ReadFile(tool(t, "attack"))
	if err != nil {
		t.Fatal(err)
	}
	b.Write(t, path, string(program))
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAttacks runs each attack without the sandbox, where it succeeds, and in
// both networks of the tier, where the kernel refuses it.
func TestAttacks(t *testing.T) {
	b := newBench(t)
	o := newOutside(t, b)
	port, pid := fmt.Sprint(o.port), fmt.Sprint(o.victim.Process.Pid)
	cases := []struct{ attack, offline, proxied string }{
		{"read=" + o.secret, "EACCES", "EACCES"},
		{"write=" + o.secret, "EACCES", "EACCES"},
		{"truncate=" + o.secret, "EACCES", "EACCES"},
		{"list=" + b.Home, "EACCES", "EACCES"},
		{"write=" + b.Home + "/new", "EACCES", "EACCES"},
		{"list=/", "EACCES", "EACCES"},
		{"connect=" + port, "EPERM", "EACCES"},
		{"mptcp=" + port, "EPERM", "EPERM"},
		{"udp=" + port, "EPERM", "EPERM"},
		{"fastopen=" + port, "EPERM", "EPERM"},
		{"fastopens=" + port, "EPERM", "EPERM"},
		{"listen", "EPERM", "EPERM"},
		{"local=" + o.socket, "EPERM", "EPERM"},
		{"localpair=" + o.datagram, "EPERM", "EPERM"},
		{fmt.Sprintf("shm=%d", o.segment), "EPERM", "EPERM"},
		{"kill=" + pid, "EPERM", "EPERM"},
		{"environ=" + pid, "EACCES", "EACCES"},
		{"memory=" + pid, "EACCES", "EACCES"},
		{"prlimit=" + pid, "EPERM", "EPERM"},
		{"userns", "EPERM", "EPERM"},
	}
	argv := []string{b.attack(t)}
	for _, c := range cases {
		argv = append(argv, c.attack)
	}
	offline := b.PolicyFile(t, "offline", base+files)
	proxied := b.PolicyFile(t, "proxied", base+files+"network: {rules: [{name: one, host: example.org}]}\n")
	yama, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	yama = bytes.TrimSpace(yama)
	control := strings.Split(wraptest.Run(t, b.Bare(b.work, argv...), limit).Out, "\n")
	for i, c := range cases {
		name, _, _ := strings.Cut(c.attack, "=")
		if name == "memory" && string(yama) > "0" {
			continue // the host itself refuses it
		}
		if got := control[i]; got != name+" ok" {
			t.Errorf("control: got %q, want %s to succeed", got, c.attack)
		}
	}
	b.Write(t, o.secret, "s3cret")
	for policy, want := range map[string]func(i int) string{
		offline: func(i int) string { return cases[i].offline }, proxied: func(i int) string { return cases[i].proxied },
	} {
		got := wraptest.Run(t, b.wrap(policy, argv...), limit)
		lines := strings.Split(got.Out, "\n")
		if len(lines) != len(cases)+1 {
			t.Fatalf("%s: got %q %s, want a line an attack", policy, got.Out, got.Err)
		}
		for i, c := range cases {
			name, _, _ := strings.Cut(c.attack, "=")
			if lines[i] != name+" "+want(i) {
				t.Errorf("%s: %s: got %q, want %q", filepath.Base(policy), c.attack, lines[i], want(i))
			}
		}
	}
	if text, err := os.ReadFile(o.secret); err != nil || string(text) != "s3cret" {
		t.Errorf("secret: got %q, %v, want it untouched", text, err)
	}
}

// TestProxy reaches what the policy allows and nothing else, by curl, which
// takes the proxy from its variables.
func TestProxy(t *testing.T) {
	b := newBench(t)
	b.RequireCommands(t, []string{"curl"})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "upstream saw %s", r.URL.Path)
	}))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	policy := b.PolicyFile(t, "proxy", base+files+fmt.Sprintf(`network:
  hosts: {allowed.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%[1]d], reason: the test server}]
  rules:
    - name: allowed
      host: allowed.test
      ports: [%[1]d]
      access: read-only
`, port))
	const ask = `curl -sS -w '\n%{http_code}' --max-time 10 `
	for _, c := range []struct{ name, script, want string }{
		{"allowed", ask + fmt.Sprintf("http://allowed.test:%d/hello", port), `^upstream saw /hello\n200$`},
		{"denied host", ask + "http://denied.test/", `"error":"policy_denied"[^\n]*\n+403$`},
		{"denied by CONNECT", ask + "https://denied.test/ 2>&1 || true", `policy_denied[^\n]*\n+403$`},
		{"denied method", ask + fmt.Sprintf("-d x http://allowed.test:%d/hello", port), `policy_denied[^\n]*\n+403$`},
		{"wrong token", `p="http://sandbox:wrong@${HTTP_PROXY#*@}"; ` + ask + fmt.Sprintf(`-x "$p" http://allowed.test:%d/`, port), `407$`},
		{"no token", `p="http://${HTTP_PROXY#*@}"; ` + ask + fmt.Sprintf(`-x "$p" http://allowed.test:%d/`, port), `407$`},
		{"around the proxy", fmt.Sprintf("curl -sS --noproxy '*' --max-time 10 http://127.0.0.1:%d/ 2>&1; echo $?", port), `(?s)7$`},
		{"resolver", "curl -sS --noproxy '*' --max-time 10 http://allowed.test/ 2>&1; echo $?", `(?s)6$`},
		{"Node knows", "echo $NODE_USE_ENV_PROXY", `^1$`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := wraptest.Run(t, b.wrap(policy, "sh", "-c", c.script), limit)
			if !regexp.MustCompile(c.want).MatchString(strings.TrimSpace(got.Out)) {
				t.Errorf("got %q %s, want %s", got.Out, got.Err, c.want)
			}
		})
	}
}

// TestPortOfTheProxyElsewhere reaches for another server that listens on the
// number of the proxy's port. Where the kernel lets connect(2) be carried out
// for the command it is refused, elsewhere the first line says that it is not.
func TestPortOfTheProxyElsewhere(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "elsewhere", base+files+"network: {rules: [{name: one, host: example.org}]}\n")
	const script = `echo "$HTTP_PROXY"; read port; exec ./attack elsewhere=127.0.0.2:$port elsewhere=127.0.0.1:$port`
	b.attack(t)
	argv := []string{b.Bin, "--policy", policy, "--", "sh", "-c", script}
	for _, c := range []struct {
		name      string
		cmd       *exec.Cmd
		want, say string
	}{
		{"carried out", b.limited(argv...), "elsewhere EACCES\nelsewhere ok\n", "TCP only to the proxy, whose"},
		{"by port alone", b.filtered(t, argv...), "elsewhere ok\nelsewhere ok\n", "is reached unjudged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var errs strings.Builder
			c.cmd.Stderr = &errs
			in, err := c.cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			read := bufio.NewReader(out)
			line, _ := read.ReadString('\n')
			_, port, err := net.SplitHostPort(strings.TrimSpace(line[strings.LastIndexByte(line, '@')+1:]))
			if err != nil {
				t.Fatalf("proxy: got %q, %v", line, err)
			}
			l, err := net.Listen("tcp4", "127.0.0.2:"+port)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			fmt.Fprintln(in, port)
			rest, _ := io.ReadAll(read)
			if err := c.cmd.Wait(); err != nil || string(rest) != c.want {
				t.Errorf("got %q, %v, want %q", rest, err, c.want)
			}
			if first, _, _ := strings.Cut(errs.String(), "\n"); !strings.Contains(first, c.say) {
				t.Errorf("first line: got %q, want %q in it", first, c.say)
			}
		})
	}
}

// TestProxyIsClosedToOthers connects from outside the sandbox while it runs.
func TestProxyIsClosedToOthers(t *testing.T) {
	b := newBench(t)
	policy := b.PolicyFile(t, "others", base+files+"network: {rules: [{name: one, host: example.org}]}\n")
	cmd := b.wrap(policy, "sh", "-c", "echo $HTTP_PROXY; read line")
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
	text := make([]byte, 256)
	n, err := out.Read(text)
	m := regexp.MustCompile(`^http://sandbox:([A-Z2-7]{26})@(127\.0\.0\.1:[0-9]+)\n$`).FindStringSubmatch(string(text[:n]))
	if m == nil {
		t.Fatalf("got %q, %v, want the proxy with a token", text[:n], err)
	}
	for token, want := range map[string]int{"": 407, strings.Repeat("A", 26): 407, m[1]: 403} {
		req, err := http.NewRequest(http.MethodGet, "http://denied.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", m[2])
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("sandbox:"+token)))
		_ = req.WriteProxy(conn)
		answer := make([]byte, 12)
		_, _ = conn.Read(answer)
		_ = conn.Close()
		if got := string(answer); got != fmt.Sprintf("HTTP/1.1 %d", want) {
			t.Errorf("token %q: got %q, want %d", token, got, want)
		}
	}
}
