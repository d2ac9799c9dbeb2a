package view

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// canaries are the places of secrets in a home, and the word that each holds.
var canaries = map[string]string{
	"ssh": ".ssh/id_ed25519", "aws": ".aws/credentials", "gh": ".config/gh/hosts.yml", "netrc": ".netrc", "npmrc": ".npmrc",
	"pypirc": ".pypirc", "docker": ".docker/config.json", "kube": ".kube/config", "git-credentials": ".git-credentials",
	"cargo": ".cargo/credentials.toml", "gnupg": ".gnupg/private-keys-v1.d/key.key", "keyring": ".local/share/keyrings/login.keyring",
	"browser": ".config/chromium/Default/Login Data", "firefox": ".mozilla/firefox/x.default/logins.json", "history": ".bash_history",
	"python-history": ".python_history", "hermes-env": ".hermes/.env", "hermes-auth": ".hermes/auth.json",
	"hermes-tokens": ".hermes/mcp-tokens/token.json", "custom-hidden": "read/hidden", "custom-hidden-dir": "write/hidden-dir/file",
	"not-granted": "other/file",
}

// outsideHome are the other places.
var outsideHome = []string{"host-tmp", "host-shm", "host-environ", "host-argument", "caller-environ"}

// hoard is a token and where it was planted.
type hoard struct {
	token   string
	planted int64
	names   []string
	roots   []string // beside the home: what the control searches
}

func plantCanaries(t *testing.T, s scene) hoard {
	t.Helper()
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	h := hoard{token: "HW" + strings.ToUpper(hex.EncodeToString(b[:])) + ":", planted: time.Now().Unix()}
	for name, file := range canaries {
		s.plant(t, file, h.token+name+"\n", false)
		h.names = append(h.names, name)
	}
	for name, dir := range map[string]string{"host-tmp": "/tmp", "host-shm": "/dev/shm"} {
		f, err := os.CreateTemp(dir, "hermes-test-")
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { _ = os.Remove(f.Name()) })
		s.Write(t, f.Name(), h.token+name+"\n")
		h.roots = append(h.roots, f.Name())
	}
	h.roots = append(h.roots, fmt.Sprintf("/proc/%d", s.neighbour(t, h)))
	h.names = append(h.names, outsideHome...)
	slices.Sort(h.names)
	return h
}

// neighbour is another process of the same account, with secrets of its own;
// it gives its pid.
func (s scene) neighbour(t *testing.T, h hoard) int {
	t.Helper()
	cmd := s.Bare(s.Home, "sh", "-c", "read line", h.token+"host-argument")
	cmd.Env = append(cmd.Env, "API_TOKEN="+h.token+"host-environ")
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hold.Close()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// finds runs the search and gives the names of what was found, and the lines.
func (h hoard) finds(t *testing.T, out string) (names []string) {
	t.Helper()
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestCanaries plants a token at every place of secrets: the control outside
// finds each of them, and nothing inside finds one.
func TestCanaries(t *testing.T) {
	for _, name := range profilesUnderTest() {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, name)
			h := plantCanaries(t, s)
			search := []string{s.program, "search", hex.EncodeToString([]byte(h.token)), strconv.FormatInt(h.planted, 10)}

			control := s.Bare(s.dir, append(append(slices.Clone(search), s.Home), h.roots...)...)
			control.Env = append(control.Env, "MY_API_KEY="+h.token+"caller-environ")
			bare := wraptest.Run(t, control, limit)
			if got := h.finds(t, bare.Out); !slices.Equal(got, h.names) {
				t.Fatalf("outside: got %v, want %v\n%s", got, h.names, bare.Err)
			}

			wrapped := s.Wrap(s.dir, s.policy, append(search, "/")...)
			wrapped.Env = append(wrapped.Env, "MY_API_KEY="+h.token+"caller-environ")
			inside := wraptest.Run(t, wrapped, limit)
			if inside.Exit != 0 || inside.Out != "" {
				t.Errorf("inside: got exit %d and\n%s%s\nwant 0 and nothing", inside.Exit, inside.Out, inside.Err)
			}
			s.sees(t, h, search)
		})
	}
}

// sees holds that the search inside would have found something: a token in the
// workspace is found.
func (s scene) sees(t *testing.T, h hoard, search []string) {
	t.Helper()
	path := filepath.Join(s.dir, "found")
	s.Write(t, path, h.token+"granted\n")
	r := wraptest.Run(t, s.Wrap(s.dir, s.policy, append(search, s.dir)...), limit)
	if got, want := r.Out, fmt.Sprintf("granted %s\n", path); got != want {
		t.Errorf("inside the workspace: got %q, want %q", got, want)
	}
}
