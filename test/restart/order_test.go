package restart

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// The command waits for the proxy, however long that reads its policy: a run
// that is refused must have run nothing. The proxy is held up by a certificate
// that is a pipe.
func TestCommandWaitsForProxy(t *testing.T) {
	t.Parallel()
	w := wraptest.New(t)
	pipe := filepath.Join(w.Home, "certificate")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(w.Home, "work", "ran")
	if err := os.Mkdir(filepath.Dir(ran), 0o755); err != nil {
		t.Fatal(err)
	}
	policy := w.PolicyFile(t, "policy.yaml", "version: 1\nworkspace: {access: write}\n"+
		"network: {upstream: {certificates: [{hosts: [a.test], cert: "+pipe+", key: /dev/null}]}}\n")
	early := make(chan bool, 1)
	go func() {
		writer, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			early <- true
			return
		}
		defer writer.Close()
		// Far longer than all the rest of a launch takes.
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(ran); err == nil {
				early <- true
				return
			}
		}
		early <- false
	}()
	got := wraptest.Run(t, w.Wrap(filepath.Dir(ran), policy, "touch", ran), time.Minute)
	if <-early {
		t.Error("the command ran before the proxy had read its policy")
	}
	if got.Exit != 125 || !strings.Contains(got.Err, "certificates[0]") {
		t.Errorf("got exit %d, %q, want 125 and what is wrong with the certificate", got.Exit, got.Err)
	}
	if _, err := os.Stat(ran); !os.IsNotExist(err) {
		t.Errorf("the command ran: got %v, want no trace of it", err)
	}
}
