package profiles

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestBrowser opens a page in a real Chromium with its own sandbox on, which
// needs what hermes-browser opens: without it Chromium refuses to start.
func TestBrowser(t *testing.T) {
	s := newStage(t)
	s.RequireCommands(t, []string{"chromium"})
	page := filepath.Join(s.work, "page.html")
	s.Write(t, page, "<html><body><script>document.write(6 * 7)</script></body></html>\n")
	open := []string{"chromium", "--headless", "--disable-gpu", "--dump-dom", "file://" + page}
	for name, works := range map[string]bool{
		"version: 1\nextends: [builtin:hermes-browser]\n":                                                true,
		"version: 1\nextends: [builtin:hermes-browser]\nprocess: {user_namespaces: false}\nassert: []\n": false,
	} {
		cmd := s.Wrap(s.work, s.PolicyFile(t, "browser", name), open...)
		cmd.Env = append(cmd.Env, "HERMES_HOME="+s.state)
		got := wraptest.Run(t, cmd, limit)
		if strings.Contains(got.Out, "</script>42") != works {
			t.Errorf("%s: got exit %d, %q, want a page: %v\n%s", name, got.Exit, got.Out, works, got.Err)
		}
		if !works && !strings.Contains(got.Err, "No usable sandbox") {
			t.Errorf("%s: got %q, want Chromium to say what it lacks", name, got.Err)
		}
	}
}
