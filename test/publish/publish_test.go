package publish

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const bearer = "Authorization: Bearer " + token

func TestClients(t *testing.T) {
	b := start(t)
	t.Run("curl", b.curl)
	t.Run("events are not held back", b.events)
	t.Run("WebSocket", b.webSocket)
	t.Run("bytes, half closed", b.bytes)
}

func (b *bench) curl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal(err)
	}
	cert := filepath.Join(b.keys, "cert.pem")
	cases := []struct {
		name string
		args []string
		want []string
		not  string
	}{
		{"plain", []string{"http://127.0.0.1:" + b.ports["plain"] + "/head"}, []string{"200 1.1\n", "GET 127.0.0.1:" + b.ports["plain"] + " /head"}, "X-Forwarded"},
		{"token", []string{"-H", bearer, "http://127.0.0.1:" + b.ports["token"] + "/head?a=1"}, []string{"200 1.1\n", "/head?a=1", "X-Forwarded-For: 127.0.0.1"}, token},
		{"no token", []string{"http://127.0.0.1:" + b.ports["token"] + "/head"}, []string{"401 1.1\n", `"unauthorized"`}, "GET"},
		{"TLS, HTTP/2", []string{"--cacert", cert, "-H", bearer, "https://localhost:" + b.ports["secure"] + "/head"}, []string{"200 2\n", "X-Forwarded-Proto: https"}, token},
		{"TLS, HTTP/2, no token", []string{"--cacert", cert, "https://localhost:" + b.ports["secure"] + "/head"}, []string{"401 2\n"}, "GET"},
		{"TLS, HTTP/1.1", []string{"--http1.1", "--cacert", cert, "-H", bearer, "https://localhost:" + b.ports["secure"] + "/head"}, []string{"200 1.1\n"}, token},
		{"TLS 1.1", []string{"--tls-max", "1.1", "--cacert", cert, "-H", bearer, "https://localhost:" + b.ports["secure"] + "/head"}, []string{"000 0\n"}, "GET"},
		{"upload", []string{"--http1.1", "--cacert", cert, "-H", bearer, "-H", "Transfer-Encoding: chunked", "-T", cert, "https://localhost:" + b.ports["secure"] + "/body"}, []string{"200 1.1\n"}, "unauthorized"},
		{"Unix socket", []string{"--unix-socket", filepath.Join(b.keys, "host.sock"), "http://inside/head"}, []string{"200 1.1\n", "GET inside /head"}, "X-Forwarded"},
		{"forged client", []string{"-H", bearer, "-H", "X-Forwarded-For: 10.9.9.9", "-H", "X_Forwarded_For: 10.9.9.9", "http://127.0.0.1:" + b.ports["token"] + "/head"}, []string{"200 1.1\n", "X-Forwarded-For: 127.0.0.1"}, "10.9.9.9"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			argv := append([]string{"curl", "-s", "--noproxy", "*", "--max-time", "50", "-w", "%{http_code} %{http_version}\n"}, c.args...)
			got := wraptest.Run(t, b.Bare(b.keys, argv...), patience)
			for _, want := range c.want {
				if !strings.Contains(got.Out, want) {
					t.Errorf("got %q, want %q in it", got.Out, want)
				}
			}
			if strings.Contains(got.Out, c.not) {
				t.Errorf("got %q, want no %q", got.Out, c.not)
			}
		})
	}
}

func (b *bench) client() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: b.roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	}}
}

func (b *bench) get(t *testing.T, url string) *http.Response {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := b.client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// The second event is sent only once the first was seen.
func (b *bench) events(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:" + b.ports["token"], "https://localhost:" + b.ports["secure"]} {
		in := bufio.NewScanner(b.get(t, url+"/events").Body)
		if !in.Scan() || in.Text() != "data: 1" {
			t.Fatalf("first event: got %q, %v", in.Text(), in.Err())
		}
		b.get(t, url+"/next")
		in.Scan()
		if !in.Scan() || in.Text() != "data: 2" {
			t.Errorf("second event: got %q, %v", in.Text(), in.Err())
		}
	}
}

func (b *bench) webSocket(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	right := ws.HandshakeHeaderHTTP(http.Header{"Authorization": {"Bearer " + token}})
	for _, url := range []string{"ws://127.0.0.1:" + b.ports["token"], "wss://localhost:" + b.ports["secure"]} {
		d := ws.Dialer{Header: right, TLSConfig: &tls.Config{RootCAs: b.roots, MinVersion: tls.VersionTLS12}}
		c, _, _, err := d.Dial(ctx, url+"/socket")
		if err != nil {
			t.Fatal(err)
		}
		for _, message := range []string{"one", strings.Repeat("x", 100_000)} {
			if err := wsutil.WriteClientText(c, []byte(message)); err != nil {
				t.Fatal(err)
			}
			if got, err := wsutil.ReadServerText(c); err != nil || string(got) != "echo "+message {
				t.Errorf("got %.40q, %v", got, err)
			}
		}
		c.Close()
		d.Header = nil
		if _, _, _, err := d.Dial(ctx, url+"/socket"); err != ws.StatusError(http.StatusUnauthorized) {
			t.Errorf("without a token: got %v, want status 401", err)
		}
	}
}

func (b *bench) bytes(t *testing.T) {
	for _, entry := range []string{"bytes", "unix", "ended"} {
		c := b.dial(t, entry)
		if entry == "ended" {
			c = tls.Client(c, &tls.Config{RootCAs: b.roots, ServerName: "localhost", MinVersion: tls.VersionTLS12})
		}
		in := bufio.NewReader(c)
		for i, want := range []string{"so far 5\n", "so far 10\n"} {
			if _, err := io.WriteString(c, "abcd\n"); err != nil {
				t.Fatal(err)
			}
			if got, err := in.ReadString('\n'); got != want {
				t.Errorf("%s: answer %d: got %q, %v, want %q", entry, i, got, err, want)
			}
		}
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := in.ReadString('\n'); got != "all 10\n" {
			t.Errorf("%s: after half-close: got %q, %v", entry, got, err)
		}
	}
}

// Each attack reaches the service through an entry that asks for nothing.
func TestTokensAndSmuggling(t *testing.T) {
	b := start(t)
	head := func(fields ...string) string {
		return "GET /head HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
	}
	smuggled := "GET /head HTTP/1.1\r\nHost: x\r\n\r\n"
	cases := []struct {
		name, text string
		open, got  []int // through "plain", and through "token"
	}{
		{"right", head(bearer, "Connection: close"), []int{200}, []int{200}},
		{"right, other case", head("authorization: bearer "+token, "Connection: close"), []int{200}, []int{200}},
		{"none", head("Connection: close"), []int{200}, []int{401}},
		{"wrong", head(bearer+"0", "Connection: close"), []int{200}, []int{401}},
		{"a beginning", head(bearer[:len(bearer)-1], "Connection: close"), []int{200}, []int{401}},
		{"another scheme", head("Authorization: Basic "+token, "Connection: close"), []int{200}, []int{401}},
		{"twice", head(bearer, bearer, "Connection: close"), []int{200}, []int{401}},
		{"wrong before right", head("Authorization: Bearer x", bearer, "Connection: close"), []int{200}, []int{401}},
		{"in the query", "GET /head?access_token=" + token + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{200}, []int{401}},
		{"named by Connection", head(bearer, "Connection: close, Authorization"), []int{200}, []int{401}},
		{"pipelined, second without", head(bearer) + head("Connection: close"), []int{200, 200}, []int{200, 401}},
		{"pipelined, both", head(bearer) + head(bearer, "Connection: close"), []int{200, 200}, []int{200, 200}},
		{"length and chunks", "POST /body HTTP/1.1\r\nHost: x\r\n" + bearer + "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, nil, []int{400}},
		{"two lengths", "POST /body HTTP/1.1\r\nHost: x\r\n" + bearer + "\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd" + smuggled, nil, []int{400}},
		{"bare line feeds", "GET /head HTTP/1.1\nHost: x\n" + bearer + "\nConnection: close\n\n", []int{200}, []int{400}},
		{"a folded field", head(bearer, "X: 1", " folded", "Connection: close"), nil, []int{400}},
		{"a space before the colon", head(bearer, "Content-Length : 5", "Connection: close"), nil, []int{400}},
		{"two hosts", head(bearer, "Host: y", "Connection: close"), nil, []int{400}},
		{"another coding", "POST /body HTTP/1.1\r\nHost: x\r\n" + bearer + "\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled, nil, []int{400}},
		{"another upgrade", head(bearer, "Connection: Upgrade", "Upgrade: h3"), nil, []int{501}},
		{"CONNECT", "CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n" + bearer + "\r\n\r\n", nil, []int{405}},
		{"TLS garbage", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage\r\n\r\n", nil, []int{400}},
		// The last: what it leads to is counted when it may be.
		{"a chunk that lies", "POST /body HTTP/1.1\r\nHost: x\r\n" + bearer + "\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + smuggled, nil, []int{400}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.open != nil {
				if got := sends(t, b.dial(t, "plain"), c.text); !slices.Equal(got, c.open) {
					t.Errorf("control: got %v, want %v", got, c.open)
				}
			}
			before := b.ask(t, "/seen")
			got := sends(t, b.dial(t, "token"), c.text)
			if !slices.Equal(got, c.got) {
				t.Errorf("got %v, want %v", got, c.got)
			}
			admitted := 0
			for _, status := range got {
				if status == 200 {
					admitted++
				}
			}
			if after := b.ask(t, "/seen"); c.name != "a chunk that lies" && number(t, after)-number(t, before) != admitted {
				t.Errorf("requests inside: from %s to %s, want %d more", before, after, admitted)
			}
			tc := tls.Client(b.dial(t, "secure"), &tls.Config{RootCAs: b.roots, ServerName: "localhost", NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
			if got := sends(t, tc, c.text); !slices.Equal(got, c.got) {
				t.Errorf("over TLS: got %v, want %v", got, c.got)
			}
		})
	}
	if got := sends(t, b.dial(t, "secure"), "garbage that is no TLS\r\n\r\n"); len(got) != 0 {
		t.Errorf("no TLS: got %v, want nothing", got)
	}
	if resp := b.get(t, "https://localhost:"+b.ports["secure"]+"/head"); resp.StatusCode != 200 {
		t.Errorf("after all of it: got %v", resp.Status)
	}
	shown := wraptest.Run(t, b.Bare(b.dir, b.Bin, "audit", "show", "--events", "--kind", "inbound"), patience)
	for _, want := range []string{`"reason":"the token is wrong"`, `"rule":"token"`, `"addr":"127.0.0.1"`} {
		if !strings.Contains(shown.Out, want) {
			t.Errorf("record: want %q in it\n%.2000s", want, shown.Out)
		}
	}
	if strings.Contains(shown.Out, token) {
		t.Error("the token is on record")
	}
}

func number(t *testing.T, s string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestFrom(t *testing.T) {
	b := start(t)
	text := "GET /head HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 127.0.0.2\r\nConnection: close\r\n\r\n"
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	c, err := d.Dial("tcp", "127.0.0.1:"+b.ports["from"])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := sends(t, c, text); !slices.Equal(got, []int{200}) {
		t.Errorf("from 127.0.0.2: got %v, want 200", got)
	}
	if got := sends(t, b.dial(t, "from"), text); len(got) != 0 {
		t.Errorf("from 127.0.0.1, with a forged field: got %v, want nothing", got)
	}
	eventually(t, "the refusal is on record", func() bool {
		shown := wraptest.Run(t, b.Bare(b.dir, b.Bin, "audit", "show", "--events", "--kind", "inbound", "--verdict", "deny"), patience)
		return strings.Contains(shown.Out, `the address is not in \"from\"`) && strings.Contains(shown.Out, `"addr":"127.0.0.1"`)
	})
}

// Of 200 connections at a time 50 are served, and the others end at once. Once
// they are gone there is room again.
func TestManyConnections(t *testing.T) {
	b := start(t)
	for _, entry := range []string{"few", "fewtoken"} {
		text := "abcd\n"
		if entry == "fewtoken" {
			text = "GET /head HTTP/1.1\r\nHost: x\r\n" + bearer + "\r\n\r\n"
		}
		var all []net.Conn
		for range 200 {
			c, err := net.Dial("tcp", "127.0.0.1:"+b.ports[entry])
			if err != nil { // reset before connect(2) returned
				continue
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		served := 0
		for _, c := range all {
			if _, err := io.WriteString(c, text); err != nil {
				continue
			}
			if n, _ := c.Read(make([]byte, 100)); n > 0 {
				served++
			}
		}
		if served != 50 {
			t.Errorf("%s: got %d connections served, want 50", entry, served)
		}
		for _, c := range all {
			c.Close()
		}
		eventually(t, "there is room again", func() bool {
			c := b.dial(t, entry)
			if _, err := io.WriteString(c, text); err != nil {
				return false
			}
			n, _ := c.Read(make([]byte, 100))
			return n > 0
		})
	}
}

// A launcher that is short of descriptors refuses, and goes on once it has some.
func TestFewDescriptors(t *testing.T) {
	b := prepare(t)
	b.run(t, "sh", "-c", `ulimit -n 96; exec "$@"`, "sh")
	var all []net.Conn
	for range 300 {
		if c, err := net.DialTimeout("tcp", "127.0.0.1:"+b.ports["bytes"], time.Second); err == nil {
			all = append(all, c)
		}
	}
	for _, c := range all {
		c.Close()
	}
	eventually(t, "it serves again", func() bool {
		select {
		case <-b.ended:
			t.Fatalf("the run ended:\n%s", b.said)
		default:
		}
		c := b.dial(t, "bytes")
		defer c.Close()
		_, _ = io.WriteString(c, "abcd\n")
		n, _ := c.Read(make([]byte, 100))
		return n > 0
	})
}

// What is not open inside is a reset, or a 503 where HTTP is spoken, and is found
// as soon as it is open, again and again.
func TestServiceComesAndGoes(t *testing.T) {
	b := start(t)
	text := "GET / HTTP/1.1\r\nHost: x\r\n" + bearer + "\r\nConnection: close\r\n\r\n"
	for range 2 {
		if got := sends(t, b.dial(t, "second"), text); len(got) != 0 {
			t.Errorf("closed inside: got %v, want a reset", got)
		}
		if got := sends(t, b.dial(t, "secondtoken"), text); !slices.Equal(got, []int{503}) {
			t.Errorf("closed inside, HTTP: got %v, want 503", got)
		}
		b.ask(t, "/open")
		for _, entry := range []string{"second", "secondtoken"} {
			if got := sends(t, b.dial(t, entry), text); !slices.Equal(got, []int{200}) {
				t.Errorf("%s: open inside: got %v, want 200", entry, got)
			}
		}
		b.ask(t, "/close")
	}
}

// The agent neither sees what clients must show nor leads them out of the sandbox.
func TestFromInside(t *testing.T) {
	b := start(t)
	half := len(token) / 2
	if got := b.ask(t, "/find?text="+token[:half]+"&more="+token[half:]+"&file="+filepath.Join(b.keys, "token")); got != "[]" {
		t.Errorf("the token shows inside: %s", got)
	}
	if got := b.ask(t, "/find?text=PRIVATE&file="+filepath.Join(b.keys, "key.pem")); got != "[]" {
		t.Errorf("the key shows inside: %s", got)
	}
	if got := b.ask(t, "/find?text=so&more=mething&file="+filepath.Join(b.dir, "seen")); got != "[]" {
		t.Errorf("control: got %s", got)
	}
	b.Write(t, filepath.Join(b.dir, "seen"), "something")
	if got := b.ask(t, "/find?text=so&more=mething&file="+filepath.Join(b.dir, "seen")); !strings.Contains(got, "seen") {
		t.Errorf("control: got %s, want the file", got)
	}

	// A socket of the host that came into the workspace later.
	host := filepath.Join(b.dir, "late.sock")
	l, err := net.Listen("unix", host)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(host, 0o777); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "the host\n")
			c.Close()
		}
	}()
	if c, err := net.Dial("unix", host); err != nil {
		t.Fatal(err)
	} else if got, _ := bufio.NewReader(c).ReadString('\n'); got != "the host\n" {
		t.Errorf("control: got %q", got)
	}
	if c := b.dial(t, "unix"); !answers(c) {
		t.Error("control: the socket inside does not answer")
	}
	if got := b.ask(t, "/link?to="+host); got != "<nil>" {
		t.Fatal(got)
	}
	if got, err := io.ReadAll(b.dial(t, "unix")); len(got) != 0 {
		t.Errorf("led to a socket of the host: got %q, %v", got, err)
	}
}

func answers(c net.Conn) bool {
	_, _ = io.WriteString(c, "abcd\n")
	got, _ := bufio.NewReader(c).ReadString('\n')
	return got == "so far 5\n"
}

func TestUnixSocketsOfTheHost(t *testing.T) {
	b := prepare(t)
	path := filepath.Join(b.keys, "host.sock")
	alone := b.PolicyFile(t, "alone", "version: 1\nextends: [builtin:strict]\nnetwork: {publish: [{listen: "+path+", to: \"80\"}]}\n")
	refused := func(why, want string) {
		t.Helper()
		got := wraptest.Run(t, b.Bare(b.dir, b.Bin, "--quiet", "--policy", alone, "--", "true"), patience)
		if got.Exit != 125 || !strings.Contains(got.Err, want) {
			t.Errorf("%s: got exit %d, %q, want %q", why, got.Exit, got.Err, want)
		}
	}
	b.Write(t, path, "a file")
	refused("a file is there", "is no socket")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	// One that nobody serves any more, of the same user.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := errors.Join(stale.Close(), os.Lchown(path, b.Uid, b.Gid)); err != nil {
		t.Fatal(err)
	}
	b.run(t)
	st, err := os.Lstat(path)
	if err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: got %v, %v, want mode 0600", st, err)
	}
	refused("it is served", "is served by another run")
	b.stop(t)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after the end: got %v, want no socket", err)
	}
	inside := b.PolicyFile(t, "inside", "version: 1\nextends: [builtin:strict]\nworkspace: {path: ., access: write}\nnetwork: {publish: [{listen: "+filepath.Join(b.dir, "x.sock")+", to: \"80\"}]}\n")
	got := wraptest.Run(t, b.Bare(b.dir, b.Bin, "--quiet", "--policy", inside, "--", "true"), patience)
	if got.Exit != 125 || !strings.Contains(got.Err, "lies under a path that the policy grants") {
		t.Errorf("under a granted path: got exit %d, %q", got.Exit, got.Err)
	}
}
