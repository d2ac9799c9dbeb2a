package corpus

import (
	"bufio"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// The authority of a run is trusted inside and only inside, and only in that
// run: nothing of it stays on the host, and the next run has another (corpus D79).
func TestAuthorityEndsWithTheRun(t *testing.T) {
	s := newScene(t)
	inspecting := s.PolicyFile(t, "inspecting", "version: 1\nextends: [builtin:strict]\nnetwork: {rules: [{name: one, host: allowed.test, access: read-only}]}\n")
	bundle := ""
	for _, path := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"} {
		if _, err := os.Stat(path); err == nil {
			bundle = path
			break
		}
	}
	if bundle == "" {
		t.Fatal("missing: a certificate bundle of the system")
	}
	before, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	host := certificates(t, before)
	var ours []*x509.Certificate
	for range 2 {
		r := wraptest.Run(t, s.Wrap(s.dir, inspecting, "cat", bundle), limit)
		if r.Exit != 0 {
			t.Fatalf("got exit %d, want 0\n%s", r.Exit, r.Err)
		}
		added := 0
		for sum, c := range certificates(t, []byte(r.Out)) {
			if host[sum] == nil {
				added++
				ours = append(ours, c)
			}
		}
		if added != 1 {
			t.Fatalf("control: got %d certificates beyond the host's, want 1", added)
		}
	}
	if ours[0].Equal(ours[1]) {
		t.Error("got the same authority in two runs, want one for each")
	}
	for _, c := range ours {
		if !c.IsCA || time.Until(c.NotAfter) > 60*24*time.Hour {
			t.Errorf("got an authority until %v, want one that ends soon", c.NotAfter)
		}
	}
	after, err := os.ReadFile(bundle)
	if err != nil || string(after) != string(before) {
		t.Errorf("the host's bundle: got a change (%v), want none", err)
	}
	_ = filepath.WalkDir(s.Home, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, c := range ours {
			if err == nil && strings.Contains(string(text), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))) {
				t.Errorf("%s: got the authority of a run, want it nowhere on the host", path)
			}
		}
		return nil
	})
}

// The key of the authority is in the proxy's memory, which no other process of
// the same user may look into, and for the next proxy in sealed memory that the
// launcher keeps. Inside, neither is in reach (corpus D78).
func TestAuthorityKeyIsOutOfReach(t *testing.T) {
	s := newScene(t)
	policy := s.PolicyFile(t, "inspecting", "version: 1\nextends: [builtin:strict]\nnetwork: {rules: [{name: one, host: allowed.test, access: read-only}]}\n")
	cmd := s.Wrap(s.dir, policy, "sh", "-c", "echo started; read line; exec ./attacker reach $line")
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
	read := bufio.NewReader(out)
	if line, err := read.ReadString('\n'); line != "started\n" {
		t.Fatalf("got %q, %v, want the command to start", line, err)
	}
	proxy := 0
	for _, pid := range family(t, cmd.Process.Pid) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(string(name), "hermes-wrap: proxy") {
			proxy = pid
		}
	}
	if proxy == 0 {
		t.Fatal("control: got no proxy among the launcher's children, want one")
	}
	sleeper := s.Bare(s.dir, "sleep", "100")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	attempts := []string{
		fmt.Sprintf("another=open,/proc/%d/mem", sleeper.Process.Pid), fmt.Sprintf("memory=open,/proc/%d/mem", proxy),
		fmt.Sprintf("environment=open,/proc/%d/environ", proxy), fmt.Sprintf("descriptors=open,/proc/%d/fd", proxy),
		fmt.Sprintf("kept=open,/proc/%d/fd", cmd.Process.Pid),
	}
	if s.Uid == 0 {
		t.Log("the machine's root may look into every process")
	} else {
		outside := outcomes(t, s.Bare(s.dir, append([]string{"./attacker", "reach"}, attempts...)...))
		if outside["kept"] != "ok" {
			t.Errorf("control: the launcher's descriptors, outside: got %q, want ok", outside["kept"])
		}
		for _, name := range []string{"memory", "environment", "descriptors"} {
			if outside["another"] != "ok" || outside[name] == "ok" {
				t.Errorf("outside: %s of the proxy: got %q, of another process %q, want the latter alone to be ok", name, outside[name], outside["another"])
			}
		}
	}
	fmt.Fprintln(in, strings.Join(attempts[1:], " "))
	for range attempts[1:] {
		if line, err := read.ReadString('\n'); err != nil || strings.HasSuffix(line, " ok\n") {
			t.Errorf("inside: got %q (%v), want it refused", line, err)
		}
	}
}

func certificates(t *testing.T, text []byte) map[[32]byte]*x509.Certificate {
	t.Helper()
	out := map[[32]byte]*x509.Certificate{}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		out[sha256.Sum256(c.Raw)] = c
	}
	return out
}
