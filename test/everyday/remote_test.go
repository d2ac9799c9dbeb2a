package everyday

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestOverSSH runs git and rsync over OpenSSH against a real server, through a
// tcp rule. ssh is told nothing of a proxy: it looks up a name and connects.
func TestOverSSH(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"git", "ssh", "sshd", "ssh-keygen", "rsync"})
	work, server, port := w.Dir(t, "work"), w.Dir(t, "server"), wraptest.FreePort(t)
	mustRun := func(script string) string {
		t.Helper()
		got := wraptest.Run(t, w.Bare(server, "bash", "-euc", gitPrelude+script), patience)
		if got.Exit != 0 {
			t.Fatalf("bare: got exit %d\n%s\n%s", got.Exit, got.Out, got.Err)
		}
		return strings.TrimSpace(got.Out)
	}
	mustRun(fmt.Sprintf(`ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f %[1]s/id; cp %[1]s/id.pub authorized
for h in ssh.test other.test; do echo "[$h]:%[2]d $(cat host.pub)"; done >%[1]s/known
git init -q --bare hub.git; head -c %[3]d /dev/urandom >bulk`, work, port, sized(24, 100)<<20))
	w.Write(t, filepath.Join(server, "config"), fmt.Sprintf(`Port %d
ListenAddress 127.0.0.1
HostKey %[2]s/host
AuthorizedKeysFile %[2]s/authorized
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
`, port, server))
	wraptest.Serve(t, w.Bare(server, w.Find("sshd"), "-D", "-e", "-f", filepath.Join(server, "config")), port)
	policy := w.PolicyFile(t, "ssh", fmt.Sprintf(`version: 1
extends: [builtin:strict]
filesystem: {read: ["/etc/ssh/ssh_config?"]}
network:
  hosts: {ssh.test: [127.0.0.1], other.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%[1]d], reason: the server of this test}]
  rules: [{name: ssh, host: ssh.test, protocol: tcp, ports: [%[1]d]}]
`, port))
	inside := func(script string) wraptest.Ended {
		t.Helper()
		ssh := fmt.Sprintf("ssh -F none -i %[1]s/id -o UserKnownHostsFile=%[1]s/known -o BatchMode=yes -o ConnectTimeout=30 -p %[2]d", work, port)
		set := fmt.Sprintf("export GIT_SSH_COMMAND=%q RSYNC_RSH=%[1]q; at=%s; S=%s\n", ssh, w.User.Username, server)
		return wraptest.Run(t, w.Wrap(work, policy, "bash", "-euc", gitPrelude+set+script), patience)
	}
	t.Run("git", func(t *testing.T) {
		got := inside(`git clone -q $at@ssh.test:$S/hub.git c 2>/dev/null; cd c; echo one >f; git add f; git commit -qm one
git push -q origin HEAD:main; git fetch -q; git rev-parse HEAD origin/main | uniq | wc -l`)
		if got.Exit != 0 || strings.TrimSpace(got.Out) != "1" {
			t.Errorf("got exit %d, %q, want it pushed\n%s", got.Exit, got.Out, got.Err)
		}
		if log := mustRun("git -C hub.git log --format=%s main"); log != "one" {
			t.Errorf("at the server: got %q, want %q", log, "one")
		}
	})
	t.Run("another host", func(t *testing.T) {
		got := inside(`git clone -q $at@other.test:$S/hub.git other`)
		if got.Exit != 128 || !strings.Contains(got.Err, "Could not read from remote repository") {
			t.Errorf("got exit %d, want git to say that it cannot read\n%s", got.Exit, got.Err)
		}
	})
	t.Run("rsync there and back", func(t *testing.T) {
		got := inside(`rsync $at@ssh.test:$S/bulk here; rsync here $at@ssh.test:$S/again`)
		if got.Exit != 0 {
			t.Fatalf("got exit %d\n%s", got.Exit, got.Err)
		}
		if sums := mustRun("cat " + work + "/here | sha256sum; sha256sum <bulk; sha256sum <again"); len(lines(sums)) != 1 {
			t.Errorf("got %q, want one sum", sums)
		}
	})
	if _, err := os.Stat(filepath.Join(work, "other")); err == nil {
		t.Error("got a clone of another host")
	}
}

// lines are the different lines of a text.
func lines(text string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(text) {
		out[strings.TrimSpace(line)] = true
	}
	return out
}
