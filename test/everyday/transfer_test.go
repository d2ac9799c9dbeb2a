package everyday

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/hermes-wrap/hermes-wrap/test/npm"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// origin is a server outside, reached through the proxy that ends TLS.
type origin struct {
	wraptest.World
	wraptest.Served
	work, repos string
	policy      string
}

// newOrigin serves repositories of a bare directory below /git, notes what is
// uploaded, sends events, and echoes on a WebSocket.
func newOrigin(t *testing.T) origin {
	t.Helper()
	o := origin{World: wraptest.New(t), repos: t.TempDir()}
	o.work = o.Dir(t, "work")
	mux := http.NewServeMux()
	backend, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("/git/", http.StripPrefix("/git", &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(backend)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + o.repos, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + o.repos},
	}))
	mux.Handle("/private/", http.StripPrefix("/private", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "user" || password != "from-the-helper" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.URL.Path = "/git" + r.URL.Path
		mux.ServeHTTP(w, r)
	})))
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x %v\n", n, h.Sum(nil), err)
	})
	mux.HandleFunc("/events", sendEvents)
	mux.HandleFunc("/ws", echo)
	o.Served = wraptest.ServeTLS(t, "origin.test", mux)
	o.policy = o.PolicyFile(t, "origin", o.policyText(""))
	return o
}

func (o origin) url(path string) string { return fmt.Sprintf("https://origin.test:%d%s", o.Port, path) }

func (o origin) policyText(more string) string {
	return fmt.Sprintf(`version: 1
extends: [builtin:strict]
network:
  hosts: {origin.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%[1]d], reason: the server of this test}]
  ca: [%[2]s]
  rules:
    - {name: git, host: origin.test, ports: [%[1]d], protocol: git, allow: [{op: fetch}, {op: push}]}
    - {name: http, host: origin.test, ports: [%[1]d], allow: [{methods: [GET, PUT], paths: [/upload, /events]}]}
    - {name: sockets, host: origin.test, ports: [%[1]d], protocol: websocket, paths: [/ws], allow: [{paths: [/ws]}]}
%[3]s`, o.Port, o.CA, more)
}

func (o origin) inside(t *testing.T, script string) wraptest.Ended {
	t.Helper()
	return wraptest.Run(t, o.Wrap(o.work, o.policy, "bash", "-euo", "pipefail", "-c", gitPrelude+script), patience)
}

func (o origin) git(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.Command("bash", "-euc", "export HOME=$PWD\n"+gitPrelude+script)
	cmd.Dir = o.repos
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestLargeClone clones and pushes back what does not compress, and compares
// every byte.
func TestLargeClone(t *testing.T) {
	o := newOrigin(t)
	o.RequireCommands(t, []string{"git"})
	const part = 20
	o.git(t, fmt.Sprintf(`git init -q large; cd large; git config core.compression 0; git config pack.window 0
for i in $(seq %d); do head -c %d /dev/urandom >file-$i; git add file-$i; git commit -qm $i; done
cd ..; git clone -q --bare --no-hardlinks large large.git; git -C large.git config pack.window 0; git init -q --bare back.git; git -C back.git config http.receivepack true`,
		sized(120, 500)/part, part<<20))
	want := o.git(t, "git -C large.git rev-parse HEAD; cd large; sha256sum file-*")
	began := time.Now()
	got := o.inside(t, fmt.Sprintf(`git clone --progress %s large 2>progress; grep -c 'Receiving objects: 100%%' progress >&2; cd large
git rev-parse HEAD; sha256sum file-*; git fsck --no-progress >&2`, o.url("/git/large.git")))
	if got.Exit != 0 || strings.TrimSpace(got.Out) != want {
		t.Fatalf("got exit %d, %q, want %q\n%s", got.Exit, got.Out, want, got.Err)
	}
	t.Logf("clone: %d MiB in %.1f s with checks", sized(120, 500), time.Since(began).Seconds())
	began = time.Now()
	if got := o.inside(t, "cd large; git -c pack.window=0 -c core.compression=0 push -q "+o.url("/git/back.git")+" HEAD:main"); got.Exit != 0 {
		t.Fatalf("push: got exit %d\n%s", got.Exit, got.Err)
	}
	t.Logf("push: %.1f s", time.Since(began).Seconds())
	if back := o.git(t, "git -C back.git rev-parse main; git -C back.git fsck --no-progress >&2"); back != strings.Fields(want)[0] {
		t.Errorf("pushed: got %q, want %q", back, strings.Fields(want)[0])
	}
}

// TestCredentialHelper pushes with the helper that the repository names: nothing
// of ours stands before it, and where there is none git says so.
func TestCredentialHelper(t *testing.T) {
	o := newOrigin(t)
	o.RequireCommands(t, []string{"git"})
	o.git(t, "git init -q --bare hub.git; git -C hub.git config http.receivepack true")
	// The rule of git knows repositories by their path.
	const change = `git init -q %[1]s; cd %[1]s; git config credential.helper %[2]s; echo one >f; git add f; git commit -qm one; git push -q %[3]s HEAD:%[1]s`
	helper := `'!f() { echo username=user; echo password=from-the-helper; }; f'`
	if got := o.inside(t, fmt.Sprintf(change, "with", helper, o.url("/private/hub.git"))); got.Exit != 0 {
		t.Errorf("got exit %d, want it pushed\n%s", got.Exit, got.Err)
	}
	got := o.inside(t, fmt.Sprintf(change, "without", "''", o.url("/private/hub.git")))
	if got.Exit != 128 || !strings.Contains(got.Err, "could not read Username") {
		t.Errorf("got exit %d, want git to ask for a name\n%s", got.Exit, got.Err)
	}
	if refs := o.git(t, "git -C hub.git for-each-ref --format='%(refname:short)'"); refs != "with" {
		t.Errorf("got %q, want %q", refs, "with")
	}
}

// TestLargeUpload sends what nobody could hold in memory.
func TestLargeUpload(t *testing.T) {
	o := newOrigin(t)
	o.RequireCommands(t, []string{"curl", "openssl"})
	size := sized(256, 2048) << 20
	o.Write(t, filepath.Join(o.work, "empty"), "")
	for _, version := range []string{"--http1.1", "--http2"} {
		if version == "--http2" && size > 256<<20 {
			size = 256 << 20
		}
		began := time.Now()
		got := o.inside(t, fmt.Sprintf(`head -c %d /dev/zero | openssl enc -aes-128-ctr -K 00 -iv 00 2>/dev/null | tee >(sha256sum | cut -c1-64 >sum) | curl -sS %s -T - %s; cat sum`,
			size, version, o.url("/upload")))
		f := strings.Fields(got.Out)
		if got.Exit != 0 || len(f) != 4 || f[0] != strconv.Itoa(size) || f[1] != f[3] || f[2] != "<nil>" {
			t.Errorf("%s: got exit %d, %q, want %d bytes and one sum\n%s", version, got.Exit, got.Out, size, got.Err)
		}
		t.Logf("%s: %d MiB in %.1f s", version, size>>20, time.Since(began).Seconds())
	}
}

// sendEvents sends numbers for as long as it is asked to; with "cut" it breaks
// off in the middle.
func sendEvents(w http.ResponseWriter, r *http.Request) {
	lasts, _ := time.ParseDuration(r.URL.Query().Get("lasts"))
	w.Header().Set("Content-Type", "text/event-stream")
	over := time.After(lasts)
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	for n := 0; ; n++ {
		_, _ = fmt.Fprintf(w, "data: %d\n\n", n)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-every.C:
		case <-r.Context().Done():
			return
		case <-over:
			if r.URL.Query().Has("cut") {
				panic(http.ErrAbortHandler)
			}
			_, _ = fmt.Fprintf(w, "data: done %d\n\n", n)
			return
		}
	}
}

// TestLongStream reads a stream of events to its end, and is told when it did
// not come to one.
func TestLongStream(t *testing.T) {
	o := newOrigin(t)
	o.RequireCommands(t, []string{"curl"})
	lasts := fmt.Sprintf("%ds", sized(2, 600))
	for _, version := range []string{"--http1.1", "--http2"} {
		t.Run(version[2:], func(t *testing.T) {
			t.Parallel()
			cmd := o.Wrap(o.work, o.policy, "curl", "-sSN", version, o.url("/events?lasts="+lasts))
			got := wraptest.Run(t, cmd, patience+15*time.Minute)
			all := strings.Split(strings.ReplaceAll(strings.TrimSpace(got.Out), "data: ", ""), "\n\n")
			for i, said := range all[:len(all)-1] {
				if said != strconv.Itoa(i) {
					t.Fatalf("event %d: got %q", i, said)
				}
			}
			if end := fmt.Sprintf("done %d", len(all)-2); got.Exit != 0 || all[len(all)-1] != end {
				t.Errorf("got exit %d, %q at last, want %q\n%s", got.Exit, all[len(all)-1], end, got.Err)
			}
			cut := wraptest.Run(t, o.Wrap(o.work, o.policy, "curl", "-sSN", version, o.url("/events?cut=1&lasts=100ms")), patience)
			if cut.Exit == 0 || strings.Contains(cut.Out, "done") {
				t.Errorf("broken off: got exit %d and %q, want curl to fail", cut.Exit, cut.Out)
			}
		})
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(8 << 20)
	for {
		kind, b, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, b) != nil {
			return
		}
	}
}

// wsScript says text and bytes, is silent, pings, and sends much both ways.
const wsScript = `
const {WebSocket} = require("ws"), crypto = require("crypto");
const [url, idle, mib] = process.argv.slice(2);
const s = new WebSocket(url, {perMessageDeflate: false});
const once = e => new Promise((ok, no) => { s.once(e, (...a) => ok(a)); s.once("error", no); s.once("close", c => no(new Error("closed " + c))); });
(async () => {
  await once("open");
  let r = once("message"); s.send("text ü"); console.log((await r)[0].toString());
  r = once("message"); s.send(Buffer.from([0, 255, 254])); console.log((await r)[0].toString("hex"), (await r)[1]);
  await new Promise(ok => setTimeout(ok, idle * 1000));
  r = once("pong"); s.ping("still"); console.log((await r)[0].toString());
  const sent = crypto.createHash("sha256"), got = crypto.createHash("sha256");
  let n = 0;
  const back = new Promise((ok, no) => { s.on("message", b => { got.update(b); if (++n == mib) ok(); }); s.once("close", c => no(new Error("closed " + c + " after " + n))); });
  for (let i = 0; i < mib; i++) { const b = crypto.randomBytes(1 << 20); sent.update(b); await new Promise(ok => s.send(b, ok)); }
  await back;
  console.log(n, sent.digest("hex") == got.digest("hex"));
  s.removeAllListeners("close"); s.close(1000);
})().catch(e => { console.log(e.message); process.exit(1); });
`

// TestWebSocket keeps a socket that is silent for longer than a gateway's, and
// carries as much as a copy out of a cluster.
func TestWebSocket(t *testing.T) {
	o := newOrigin(t)
	o.RequireCommands(t, []string{"node"})
	modules := filepath.Join(npm.Require(t, "peers"), "node_modules")
	o.policy = o.PolicyFile(t, "ws", o.policyText(fmt.Sprintf("filesystem: {read: [%q]}\nenv: {set: {NODE_PATH: %[1]q}}\n", modules)))
	o.Write(t, filepath.Join(o.work, "ws.cjs"), wsScript)
	mib := sized(32, 100)
	began := time.Now()
	got := o.inside(t, fmt.Sprintf("node ws.cjs wss://origin.test:%d/ws %d %d", o.Port, sized(1, 150), mib))
	if want := fmt.Sprintf("text ü\n00fffe true\nstill\n%d true\n", mib); got.Exit != 0 || got.Out != want {
		t.Errorf("got exit %d, %q, want %q\n%s", got.Exit, got.Out, want, got.Err)
	}
	t.Logf("%d MiB each way, %.1f s in all", mib, time.Since(began).Seconds())
}
