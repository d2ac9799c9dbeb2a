package proxy

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

const (
	oldID   = "1111111111111111111111111111111111111111"
	freshID = "2222222222222222222222222222222222222222"
	noID    = "0000000000000000000000000000000000000000"
)

func gitRule() policy.Rule {
	return policy.Rule{
		Protocol: policy.ProtocolGit, AllowSet: true,
		Allow: []policy.Match{
			{Op: "fetch", Repos: []string{"acme/*"}},
			{Op: "push", Repos: []string{"acme/work"}, Refs: []string{"refs/heads/agent/*", "refs/heads/main"}},
		},
		Deny: []policy.Match{{Op: "push", Refs: []string{"refs/heads/main"}}},
	}
}

func push(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		b.Write(packet(line))
	}
	return b.String() + "0000"
}

const caps = "\x00report-status side-band-64k atomic object-format=sha1 agent=git/2.39.5"

// Which refs a push changes decides, all of them (corpus D71).
func TestGitPush(t *testing.T) {
	w, s, c := messageWorld(t, gitRule())
	const agent = "refs/heads/agent/x"
	update := func(ref string) string { return oldID + " " + freshID + " " + ref }
	tests := []struct {
		name, body string
		ok         bool
	}{
		{"update", push(update(agent)+caps) + "PACKdata", true},
		{"line end", push(update(agent)+caps+"\n", update("refs/heads/agent/y")+"\n") + "PACKdata", true},
		{"create", push(noID+" "+freshID+" "+agent+caps) + "PACKdata", true},
		{"delete", push(oldID + " " + noID + " " + agent + caps), true},
		{"shallow", push("shallow "+oldID, update(agent)+caps) + "PACKdata", true},
		{"sha256", push(strings.Repeat("1", 64)+" "+strings.Repeat("2", 64)+" "+agent+caps) + "PACKdata", true},
		{"nothing", "0000", true},

		{"other ref", push(update("refs/heads/x")+caps) + "PACKdata", false},
		{"denied ref", push(update("refs/heads/main")+caps) + "PACKdata", false},
		{"denied ref second", push(update(agent)+caps, update("refs/heads/main")) + "PACKdata", false},
		{"delete denied", push(oldID + " " + noID + " refs/heads/main" + caps), false},
		{"tag", push(update("refs/tags/v1")+caps) + "PACKdata", false},
		{"ref climbs", push(update("refs/heads/agent/../main")+caps) + "PACKdata", false},
		{"ref with two slashes", push(update("refs/heads//agent/x")+caps) + "PACKdata", false},
		{"not below refs", push(update("HEAD")+caps) + "PACKdata", false},
		{"certificate", push("push-cert"+caps, "certificate version 0.1\n") + "PACKdata", false},
		{"push options", push(update(agent)+caps+" push-options") + push("ci.skip") + "PACKdata", false},
		{"unknown capability", push(update(agent)+caps+" x-merge") + "PACKdata", false},
		{"second capabilities", push(update(agent)+caps, update("refs/heads/agent/y")+"\x00push-options"), false},
		{"no capabilities", push(update(agent)) + "PACKdata", false},
		{"shallow in the middle", push(update(agent)+caps, "shallow "+oldID) + "PACKdata", false},
		{"NUL after shallow", push("shallow "+oldID+"\x00push-options", update(agent)+caps), false},
		{"id in capitals", push(strings.Repeat("A", 40)+" "+freshID+" "+agent+caps) + "PACKdata", false},
		{"ids of two lengths", push(strings.Repeat("1", 64)+" "+freshID+" "+agent+caps) + "PACKdata", false},
		{"bytes after nothing", "0000" + push(update("refs/heads/main")+caps), false},
		{"delimiter", string(packet(update(agent)+caps)) + "0001" + push(update("refs/heads/main")), false},
		{"length in capitals", strings.Replace(push(update(agent)+caps), "00", "0A", 1), false},
		{"length too short", "0003", false},
		{"length too long", "fff8" + strings.Repeat("x", 1<<16), false},
		{"cut", push(update(agent) + caps)[:40], false},
		{"too many", push(append([]string{update(agent) + caps}, strings.Split(strings.TrimSpace(strings.Repeat(update(agent)+"\t", 30_000)), "\t")...)...), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.forget()
			resp, answer := send(t, c, "POST", "/acme/work.git/git-receive-pack", tt.body, inJSON, "application/x-git-receive-pack-request")
			r, got := s.last()
			if ok := resp.StatusCode == 200; ok != tt.ok || (r != nil) != tt.ok {
				t.Errorf("got status %d, arrived %v, want %v\n%s", resp.StatusCode, r != nil, tt.ok, answer)
			}
			if tt.ok && got != tt.body {
				t.Errorf("body: got %q, want %q", got, tt.body)
			}
		})
	}
	w.wantEvent("push", func(e audit.Event) bool {
		return e.Verdict == audit.Allow && e.Operation == "push acme/work refs/heads/agent/x"
	})
	w.wantEvent("denied push", func(e audit.Event) bool {
		return e.Verdict == audit.Deny && e.Operation == "push acme/work refs/heads/agent/x refs/heads/main"
	})
	w.wantNoFault()
}

// Fetching and pushing are told apart, whatever a request looks like.
func TestGitServices(t *testing.T) {
	_, s, c := messageWorld(t, gitRule())
	tests := []struct {
		method, target, kind string
		ok                   bool
	}{
		{"GET", "/acme/a.git/info/refs?service=git-upload-pack", "", true},
		{"GET", "/acme/work/info/refs?service=git-receive-pack", "", true},
		{"POST", "/acme/a/git-upload-pack", "application/x-git-upload-pack-request", true},

		{"GET", "/acme/a.git/info/refs?service=git-receive-pack", "", false},
		{"GET", "/evil/a.git/info/refs?service=git-upload-pack", "", false},
		{"GET", "/acme/a.git/info/refs", "", false},
		{"GET", "/acme/a.git/info/refs?service=git-upload-pack&service=git-receive-pack", "", false},
		{"GET", "/acme/a.git/info/refs?service=git-upload-pack&Service=git-receive-pack", "", false},
		{"HEAD", "/acme/a.git/info/refs?service=git-upload-pack", "", false},
		{"POST", "/acme/a.git/info/refs?service=git-upload-pack", "", false},
		{"POST", "/acme/a/git-upload-pack", "application/json", false},
		{"POST", "/acme/a/git-upload-pack", "application/x-git-receive-pack-request", false},
		{"POST", "/acme/a/git-upload-pack?service=git-receive-pack", "application/x-git-upload-pack-request", false},
		{"POST", "/evil/a/git-upload-pack", "application/x-git-upload-pack-request", false},
		{"POST", "/acme/work/GIT-receive-pack", "application/x-git-receive-pack-request", false},
		{"POST", "/acme/work/git-receive-pack/", "application/x-git-receive-pack-request", false},
		{"GET", "/acme/a.git/HEAD", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			s.forget()
			body := ""
			if tt.method == "POST" {
				body = "0000"
			}
			resp, answer := send(t, c, tt.method, tt.target, body, inJSON, tt.kind)
			if r, _ := s.last(); (resp.StatusCode == 200) != tt.ok || (r != nil) != tt.ok {
				t.Errorf("got status %d, arrived %v, want %v\n%s", resp.StatusCode, r != nil, tt.ok, answer)
			}
		})
	}
}

// A packed push is judged and forwarded unpacked.
func TestGitPushPacked(t *testing.T) {
	_, s, c := messageWorld(t, gitRule())
	for ref, ok := range map[string]bool{"refs/heads/agent/x": true, "refs/heads/main": false} {
		body := push(oldID+" "+freshID+" "+ref+caps) + "PACK" + strings.Repeat("x", 100_000)
		s.forget()
		resp, _ := send(t, c, "POST", "/acme/work/git-receive-pack", pack(t, "gzip", body), inJSON, "application/x-git-receive-pack-request", "Content-Encoding", "gzip")
		r, got := s.last()
		if (resp.StatusCode == 200) != ok || ok && (got != body || r.Header.Get("Content-Encoding") != "") {
			t.Errorf("%s: got status %d, %d bytes, want %v", ref, resp.StatusCode, len(got), ok)
		}
	}
}

// git shows what comes as text with the advertisement, and what a push's own
// report says.
func TestGitRefusal(t *testing.T) {
	_, _, c := messageWorld(t, gitRule())
	resp, got := send(t, c, "GET", "/evil/a/info/refs?service=git-upload-pack", "", "User-Agent", "git/2.39.5")
	if resp.StatusCode != 403 || resp.Header.Get(inJSON) != "text/plain" || !strings.HasPrefix(got, "hermes-wrap: denied by the sandbox's policy: ") {
		t.Errorf("advertisement: got %d %q %q, want 403 and text", resp.StatusCode, resp.Header.Get(inJSON), got)
	}
	body := push(oldID+" "+freshID+" refs/heads/main"+caps) + "PACK"
	resp, got = send(t, c, "POST", "/acme/work/git-receive-pack", body, inJSON, "application/x-git-receive-pack-request", "User-Agent", "git/2.39.5")
	if resp.StatusCode != 200 || resp.Header.Get(decisionHeader) != "deny" || !strings.Contains(got, "unpack ok\n") || !strings.Contains(got, "ng refs/heads/main denied by") {
		t.Errorf("push: got %d %q, want a report", resp.StatusCode, got)
	}
}

// measured reads without end and keeps nothing.
type measured struct{ left int64 }

func (m *measured) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), m.left))
	m.left -= int64(n)
	return n, nil
}

// A pack passes through without being held.
func TestGitPackIsNotHeld(t *testing.T) {
	const size = 256 << 20
	w := newWorld(t, policy.Network{Rules: []policy.Rule{func() policy.Rule {
		r := gitRule()
		r.Name, r.Host = "msg", messageHost
		return r
	}()}})
	var most, got uint64
	w.serve(messageHost, 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 64<<10)
		for pieces := 0; ; pieces++ {
			n, err := r.Body.Read(buf)
			got += uint64(n)
			if pieces%500 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			}
			if err != nil {
				return
			}
		}
	}))
	c := w.client(messageHost, 443, false)
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	head := push(noID + " " + freshID + " refs/heads/agent/x" + caps)
	r, err := http.NewRequest("POST", messageBase+"/acme/work/git-receive-pack", io.MultiReader(strings.NewReader(head), &measured{size}))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(inJSON, "application/x-git-receive-pack-request")
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	readBody(t, resp)
	if resp.StatusCode != 200 || got != size+uint64(len(head)) {
		t.Fatalf("got status %d and %d bytes, want 200 and %d", resp.StatusCode, got, size+len(head))
	}
	if grown := int64(most) - int64(before.HeapInuse); grown > 24<<20 {
		t.Errorf("heap: grew by %d bytes during a pack of %d, want less than 24 MiB", grown, size)
	}
}
