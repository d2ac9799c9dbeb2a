package everyday

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestSigningAgent signs a commit inside with a key that stays outside: the
// policy opens the socket of the user's gpg-agent and shows the public keys.
func TestSigningAgent(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"git", "gpg", "gpgconf"})
	work, keys := w.Dir(t, "work"), filepath.Join(w.Home, "g")
	bare := func(script string) string {
		t.Helper()
		got := wraptest.Run(t, w.Bare(work, "bash", "-euc", "export GNUPGHOME="+keys+"\n"+script), patience)
		if got.Exit != 0 {
			t.Fatalf("bare: got exit %d\n%s\n%s", got.Exit, got.Out, got.Err)
		}
		return strings.TrimSpace(got.Out)
	}
	socket := bare(`mkdir -m 700 $GNUPGHOME; git init -q .
gpg -q --batch --passphrase '' --quick-gen-key e@example.org ed25519 sign never 2>/dev/null; gpgconf --list-dirs agent-socket`)
	t.Cleanup(func() { bare("gpgconf --kill all") })
	const grant = `version: 1
extends: [builtin:strict]
filesystem:
  read: [%[1]s/pubring.kbx, "%[1]s/trustdb.gpg?"]
%[2]s
env: {set: {GNUPGHOME: %[1]s}}
`
	// Inside there is a runtime directory, where gpg looks first; the host may
	// have none.
	script := gitPrelude + fmt.Sprintf(`s=$(gpgconf --list-dirs agent-socket); [ -e $s ] || { (umask 077; mkdir -p "$(dirname $s)"); ln -s %s $s; }
ls %s/private-keys-v1.d 2>/dev/null || true
git config --global user.signingkey e@example.org; git commit -q -S --allow-empty -m signed; git cat-file commit HEAD | grep -c 'BEGIN PGP'`, socket, keys)
	for _, c := range []struct {
		name, sockets string
		exit          int
		want          string
	}{
		{"without the socket", "", 128, ""},
		{"with the socket", "  sockets: [" + socket + "]", 0, "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := w.PolicyFile(t, "signing", fmt.Sprintf(grant, keys, c.sockets))
			got := wraptest.Run(t, w.Wrap(work, policy, "bash", "-euc", script), patience)
			if got.Exit != c.exit || strings.TrimSpace(got.Out) != c.want {
				t.Errorf("got exit %d, %q, want %d, %q\n%s", got.Exit, got.Out, c.exit, c.want, got.Err)
			}
		})
	}
	if count := bare("git rev-list --count HEAD; git verify-commit HEAD"); count != "1" {
		t.Errorf("outside: got %q commits, want 1 that is verified", count)
	}
}
