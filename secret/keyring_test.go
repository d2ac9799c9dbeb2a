package secret

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/zalando/go-keyring"

	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// TestRealKeyring runs itself again in a session of its own with the Secret
// Service of GNOME, from an empty home.
func TestRealKeyring(t *testing.T) {
	if os.Getenv("SECRET_KEYRING_SESSION") != "" {
		inSession(t)
		return
	}
	for _, name := range []string{"dbus-run-session", "gnome-keyring-daemon"} {
		_, err := exec.LookPath(name)
		harness.Require(t, err == nil, name)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	// The daemon goes into the background as soon as it is unlocked, and ends with
	// the session's bus.
	cmd := exec.Command("dbus-run-session", "--", "sh", "-c", `printf password | gnome-keyring-daemon --unlock --components=secrets >/dev/null && exec "$0" -test.run '^TestRealKeyring$' -test.v`, self)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "XDG_DATA_HOME=" + home, "SECRET_KEYRING_SESSION=1"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("got %v, want a pass in the session\n%s", err, out)
	}
	if strings.Contains(string(out), value) {
		t.Error("got the secret in the output")
	}
}

func inSession(t *testing.T) {
	if err := keyring.Set("hermes-wrap-test", "me", value); err != nil {
		t.Fatal(err)
	}
	r := Reader{Environ: os.Environ()}
	got, err := r.Read(context.Background(), policy.CredentialSource{Keyring: "hermes-wrap-test/me"})
	if err != nil || got != value {
		t.Errorf("got an error %v or another secret, want the one that was put there", err)
	}
	if _, err := r.Read(context.Background(), policy.CredentialSource{Keyring: "hermes-wrap-test/nobody"}); err == nil || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("got %v, want that there is none", err)
	}
}
