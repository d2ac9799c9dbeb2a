package weak

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// A proxy that is killed is replaced in this tier as well: at the same port,
// with the same token, and with nothing allowed that was not.
func TestProxyIsReplaced(t *testing.T) {
	b := newBench(t)
	b.RequireCommands(t, []string{"curl"})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "welcome") }))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	policy := b.PolicyFile(t, "replaced", base+files+fmt.Sprintf(`network:
  hosts: {allowed.test: [127.0.0.1], denied.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%[1]d], reason: the server of this test}]
  rules: [{name: one, host: allowed.test, ports: [%[1]d], access: read-only}]
`, port))
	script := fmt.Sprintf(`for turn in 1 2; do
  until [ "$(curl -sS --max-time 30 http://allowed.test:%[1]d/ 2>/dev/null)" = welcome ]; do sleep 0.05; done
  curl -s --max-time 30 -o /dev/null -w 'served %%{http_code}\n' http://denied.test:%[1]d/
  read line
done`, port)
	cmd := b.wrap(policy, "sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(2*limit, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	lines := bufio.NewScanner(out)
	for turn := range 2 {
		if !lines.Scan() || lines.Text() != "served 403" {
			t.Errorf("turn %d: got %q, want what is allowed served and the rest denied", turn, lines.Text())
		}
		if turn == 0 {
			if err := syscall.Kill(proxyOf(t, cmd.Process.Pid), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintln(in)
	}
	if code := wraptest.Exit(t, cmd.Wait()); code != 0 {
		t.Errorf("got exit %d, want 0", code)
	}
	// What ends the tree in the end leaves the proxy alone, also the second.
	if n := strings.Count(said.String(), "the proxy ended"); n != 1 {
		t.Errorf("got %d proxies that ended, want the one that was killed\n%s", n, said.String())
	}
}

// proxyOf finds a launcher's proxy.
func proxyOf(t *testing.T, launcher int) (pid int) {
	t.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", launcher))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, child := range strings.Fields(string(text)) {
			name, _ := os.ReadFile("/proc/" + child + "/cmdline")
			if strings.HasPrefix(string(name), "hermes-wrap: proxy") {
				_, _ = fmt.Sscan(child, &pid)
			}
		}
	}
	if pid == 0 {
		t.Fatal("got no proxy")
	}
	return pid
}
