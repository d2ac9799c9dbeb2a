package supervise

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const base = "version: 1\nname: p\nworkspace: {path: ., access: write, exec: true}\n"

func TestBurst(t *testing.T) {
	s := newService(t)
	s.start(base+"supervise: {restart: on-failure, backoff: 10ms, burst: 3, within: 10m}\n", nil, "sh", "-c", "echo once; exit 3")
	if code := s.ended(); code != 3 {
		t.Errorf("exit code: got %d, want 3", code)
	}
	starts := slices.DeleteFunc(s.entries(), func(e entry) bool { return e.name != "main" || e.text != "once" })
	if len(starts) != 3 {
		t.Errorf("got %d starts, want 3", len(starts))
	}
	shown := wraptest.Run(t, s.Bare(s.dir, s.Bin, "audit", "show", "--events", "--kind", "service"), patience)
	for operation, want := range map[string]int{"start": 3, "exit": 3, "restart": 2, "give up": 1} {
		if n := strings.Count(shown.Out, `"operation":"`+operation+`"`); n != want {
			t.Errorf("record: got %d of %q, want %d\n%s", n, operation, want, shown.Out)
		}
	}
}

// A service that is given up is said, and the command goes on.
func TestServiceIsGivenUp(t *testing.T) {
	s := newService(t)
	s.start(base+`supervise:
  services:
    broken: {command: [sh, -c, "exit 4"], backoff: 10ms, burst: 2}
    missing: {command: [no-such-program], backoff: 10ms, burst: 2}
`, nil, "sh", "-c", "until [ -e over ]; do sleep 0.05; done; exit 5")
	s.awaitLines(1, "hermes-wrap", "^broken: given up")
	s.awaitLines(1, "hermes-wrap", "^missing: given up")
	s.Write(t, filepath.Join(s.dir, "over"), "")
	if code := s.ended(); code != 5 {
		t.Errorf("exit code: got %d, want the command's 5", code)
	}
	for _, want := range []string{"broken: given up", "missing: given up"} {
		if !strings.Contains(s.err.String(), want) {
			t.Errorf("stderr: got %q, want %q", s.err.String(), want)
		}
	}
}

// Services are stopped in reverse order, each with its own grace.
func TestStopInOrder(t *testing.T) {
	s := newService(t)
	waiting := `trap 'echo stopping; exit 0' TERM; echo up; while :; do sleep 0.05; done`
	s.start(base+`process: {stop_grace: 60s}
supervise:
  services:
    first: {command: [sh, -c, "`+waiting+`"]}
    stubborn: {command: [sh, -c, "trap '' TERM; echo up; while :; do sleep 0.05; done"], after: [first, main], stop_grace: 500ms}
    last: {command: [sh, -c, "`+waiting+`"], after: [stubborn]}
`, nil, "sh", "-c", waiting)
	s.awaitLines(1, "last", "^up$")
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := s.ended(); code != 0 {
		t.Errorf("exit code: got %d, want 0", code)
	}
	var order []string
	for _, line := range s.said() {
		for _, end := range []string{": exited with", ": ended by", ": is killed"} {
			if name, _, ok := strings.Cut(line, end); ok {
				order = append(order, name+end)
			}
		}
	}
	if len(order) != 5 || !slices.Equal(order[:3], []string{"last: exited with", "stubborn: is killed", "stubborn: ended by"}) {
		t.Errorf("got the ends %q, want last, then stubborn by force, then the others", order)
	}
}

func TestSecondSignalKills(t *testing.T) {
	s := newService(t)
	s.start(base+"process: {stop_grace: 1h}\nsupervise: {restart: always}\n", nil, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
	s.awaitLines(1, "main", "^up$")
	for range 2 {
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		s.awaitLines(1, "hermes-wrap", "^main: is asked to end within 1h0m0s")
	}
	if code := s.ended(); code != 137 {
		t.Errorf("exit code: got %d, want 137", code)
	}
}

const sickly = `import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if os.path.exists("sick") else 302)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", 8642), H).serve_forever()
`

func TestHealth(t *testing.T) {
	s := newService(t)
	s.Write(t, filepath.Join(s.dir, "sickly.py"), sickly)
	s.start(base+`supervise:
  restart: on-failure
  backoff: 10ms
  burst: 1000
  health: {url: "http://127.0.0.1:8642/", interval: 50ms, failures: 2, grace: 3s, timeout: 20s}
`, nil, "sh", "-c", "rm -f sick; exec python3 sickly.py")
	s.awaitLines(1, "hermes-wrap", "^main: is up")
	s.Write(t, filepath.Join(s.dir, "sick"), "")
	s.awaitLines(1, "hermes-wrap", `^main: does not answer: http://127.0.0.1:8642/ answered with status 503 \(2 of 2\)$`)
	s.awaitLines(2, "hermes-wrap", "^main: started")
	s.awaitLines(2, "hermes-wrap", "^main: is up")
}

// The service manager outside is told what it can use, and its socket is not
// seen inside.
func TestNotify(t *testing.T) {
	s := newService(t)
	path := filepath.Join(s.Runtime, "n")
	outside, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	s.Write(t, filepath.Join(s.dir, "n.py"), `import os, socket, sys, time
print("socket", os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"], "WATCHDOG_PID" in os.environ, flush=True)
def say(b):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b, os.environ["NOTIFY_SOCKET"])
say(b"READY=1\nSTATUS=ser\x1b[2Jving\nMAINPID=1\nFDSTORE=1")
say(b"STATUS=not well formed\nREADY")
say(b"x" * 5000 + b"=1")
say(b"STOPPING=1")
say(b"EXTEND_TIMEOUT_USEC=4711")
while not os.path.exists("over"):
    say(b"WATCHDOG=1")
    time.sleep(0.05)
`)
	s.start(base+"supervise: {notify: true, restart: always, services: {other: {command: [sleep, 1h], after: [main]}}}\n",
		[]string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=600000000"}, "python3", "n.py")
	var got []string
	receive := func() string {
		b := make([]byte, 8192)
		if err := outside.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, _, err := outside.ReadFromUnix(b)
		if err != nil {
			t.Fatalf("got %q, then %v", got, err)
		}
		return string(b[:n])
	}
	for len(got) == 0 || got[len(got)-1] != "WATCHDOG=1" {
		got = append(got, receive())
	}
	if want := []string{"READY=1\nSTATUS=ser?[2Jving", "EXTEND_TIMEOUT_USEC=4711", "WATCHDOG=1"}; !slices.Equal(got, want) {
		t.Errorf("outside: got %q, want %q", got, want)
	}
	s.awaitLines(1, "hermes-wrap", "^other: started") // since the command said that it is up
	if e := s.awaitLines(1, "main", "^socket "); !regexp.MustCompile(`^socket /run/user/\d+/notify 600000000 False$`).MatchString(e.text) {
		t.Errorf("inside: got %q, want a socket of the sandbox's own", e.text)
	}
	s.awaitLines(1, "hermes-wrap", "^main: FDSTORE of sd_notify is not passed on")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for got = nil; len(got) == 0 || got[len(got)-1] != "STOPPING=1"; {
		if m := receive(); m != "WATCHDOG=1" {
			got = append(got, m)
		}
	}
	if len(got) != 1 {
		t.Errorf("outside: got %q at the end, want STOPPING=1 alone", got)
	}
	s.ended()
}

// Without notify, and without supervise too, the launcher says that it is ready.
func TestReadyIsSaid(t *testing.T) {
	for name, policy := range map[string]string{
		"supervised": base + "supervise: {restart: always, services: {other: {command: [sleep, 1h], after: [main]}}}\n", "not supervised": base,
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			path := filepath.Join(s.Runtime, "n")
			outside, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer outside.Close()
			if err := os.Chmod(path, 0o777); err != nil {
				t.Fatal(err)
			}
			s.start(policy, []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=100000"}, "sh", "-c", `env | grep -c NOTIFY > seen; sleep 1h`)
			var got []string
			// Signs of life come before it on a slow machine.
			for ready := -1; ready < 0 || len(got) < ready+4; {
				b := make([]byte, 100)
				if err := outside.SetReadDeadline(time.Now().Add(patience)); err != nil {
					t.Fatal(err)
				}
				n, err := outside.Read(b)
				if err != nil {
					t.Fatalf("got %q, then %v", got, err)
				}
				got = append(got, string(b[:n]))
				if ready < 0 {
					ready = slices.Index(got, "READY=1")
				}
			}
			if n := len(slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s != "READY=1" })); n != 1 || !slices.Contains(got, "WATCHDOG=1") {
				t.Errorf("got %q, want READY=1 once and signs of life", got)
			}
			s.await("look at the environment", func() bool {
				b, err := os.ReadFile(filepath.Join(s.dir, "seen"))
				return err == nil && string(b) == "0\n"
			})
		})
	}
}

// A reader that does not read holds nobody up; the log has every line.
func TestNobodyReads(t *testing.T) {
	const lines = 30000
	for _, gone := range []bool{false, true} {
		s := newService(t)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		file := s.PolicyFile(t, "p", base+"supervise: {restart: on-failure, log: {max_size: 1M, keep: 8}}\n")
		s.cmd = s.Bare(s.dir, s.Bin, "--quiet", "--policy", file, "--name", "run", "--", "sh", "-c", "seq -f 'line %.0f, and some text that makes it longer' 30000; printf torn")
		s.cmd.Stdout, s.cmd.Stderr = w, &s.err
		s.launch()
		w.Close()
		if gone {
			r.Close()
		}
		if code := s.ended(); code != 0 {
			t.Errorf("exit code: got %d, want 0: %s", code, s.err.String())
		}
		n := 0
		for _, e := range s.entries() {
			if e.name == "main" && e.mark == "|" {
				n++
			}
		}
		if n != lines {
			t.Errorf("log: got %d lines, want %d", n, lines)
		}
		if last := s.entries(); !slices.ContainsFunc(last, func(e entry) bool { return e.mark == "~" && e.text == "torn" }) {
			t.Error("log: got no line without an end, want one")
		}
		if !strings.Contains(s.err.String(), "all output is in") {
			t.Errorf("stderr: got %q, want where the output is", s.err.String())
		}
	}
}

// Where both streams lead to somebody who does not read, services are started
// again all the same.
func TestNobodyReadsEither(t *testing.T) {
	s := newService(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	file := s.PolicyFile(t, "p", base+`supervise:
  restart: on-failure
  backoff: 10ms
  services: {broken: {command: [sh, -c, "seq 100000; exit 1"], burst: 1}}
`)
	s.cmd = s.Bare(s.dir, s.Bin, "--quiet", "--policy", file, "--name", "run", "--", "sh", "-c", "until [ -e over ]; do sleep 0.05; done; exit $(cat over)")
	s.cmd.Stdout, s.cmd.Stderr = w, w
	s.launch()
	w.Close()
	s.awaitLines(1, "hermes-wrap", "^broken: given up")
	s.Write(t, filepath.Join(s.dir, "over"), "0")
	if code := s.ended(); code != 0 {
		t.Errorf("exit code: got %d, want 0", code)
	}
}

// What services print cannot act on the terminal; Ctrl-C ends them in order.
func TestTerminal(t *testing.T) {
	w := wraptest.New(t)
	dir := w.Dir(t, "ws")
	policy := w.PolicyFile(t, "p", base+"supervise: {restart: always}\n")
	r, err := w.Dialogue(harness.Command{
		Argv: []string{w.Bin, "-q", "-p", policy, "--name", "run", "--", "sh", "-c", `trap 'echo bye; exit 7' TERM; printf 'a\033]52;c;YQ==\007\033[2Jb\n'; while :; do sleep 0.05; done`},
		Dir:  dir, Limit: patience, Env: []string{"XDG_RUNTIME_DIR=" + w.Runtime},
	}, harness.Size{Rows: 24, Cols: 80}, []harness.Action{
		{Expect: regexp.MustCompile(`main \| a\\u001b\]52;c;YQ==\\u0007\\u001b\[2Jb`)}, {Send: "\x03"}, {Expect: regexp.MustCompile(`main \| bye`)},
	})
	if err != nil || r.Exit != 7 {
		t.Errorf("got %v and exit code %d, want 7\n%s", err, r.Exit, r.Stdout)
	}
}
