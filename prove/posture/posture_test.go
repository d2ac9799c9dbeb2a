package posture

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

var update = flag.Bool("update", false, "write the golden files; review every line")

// TestProfiles holds every built-in profile and the weaker tier against its golden
// file, as the account that HERMES_TEST_USER names or as who runs the test.
func TestProfiles(t *testing.T) {
	bin := os.Getenv("HERMES_WRAP_BIN")
	harness.Require(t, bin != "", "HERMES_WRAP_BIN, the binary to test")
	s, err := newScene(t.Context(), report.Options{Bin: bin}, os.Getenv("HERMES_TEST_USER"))
	if s != nil {
		t.Cleanup(s.close)
	}
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, profile := range s.profiles() {
		t.Run(profile, func(t *testing.T) {
			c, err := s.posture(t.Context(), profile)
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range c.grown {
				t.Errorf("grown: %s", what)
			}
			path := s.golden(root, profile)
			if *update {
				if err := os.WriteFile(path, []byte(strings.Join(c.lines, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range c.fits(string(want)) {
				t.Error(d)
			}
		})
	}
}

// TestGrowth: each kind of field that grows is seen, whatever is golden.
func TestGrowth(t *testing.T) {
	outside := "capget effective: 0000000000000000\nstatus NoNewPrivs: 1\nstatus Seccomp_filters: 1\nstatus Uid: 1 1 1 1\nstatus Groups: 1\nprctl dumpable: 0\nprctl securebits: 4\n" +
		"limit core hard: 0\nlimit as soft: 100\nnamespace net: net:[1]\ndescriptor 0: open\ndescriptor 3: open\nenv GITHUB_TOKEN: aa\nself nice: 25\nproc /proc/x: -\nsysctl /proc/sys/y: read\n"
	for _, c := range []struct{ inside, grown string }{
		{"capget effective: 0000000000000001", "capabilities"},
		{"status NoNewPrivs: 0", "lock"},
		{"status Seccomp_filters: 0", "lock"},
		{"status Uid: 2 2 2 2", "the caller's"},
		{"status Groups: 1 27", "group"},
		{"prctl dumpable: 1", "look in"},
		{"prctl securebits: 0", "cleared"},
		{"limit core hard: 1", "raised"},
		{"limit as soft: 18446744073709551615", "raised"},
		{"namespace net: net:[1]", "shared"},
		{"descriptor 3: open", "descriptor"},
		{"descriptor 1: open", "descriptor"},
		{"env GITHUB_TOKEN: aa", "secret"},
		{"self nice: 20", "must be"},
		{"proc /proc/x: read", "/proc/x"},
		{"sysctl /proc/sys/y: written", "/proc/sys/y"},
		{"sys /sys/z: -", "/sys/z"},
		{"mount 1 2 0:1 / /usr rw,nosuid,nodev - ext4 /dev/a rw", "written"},
		{"mount 1 2 0:1 / /usr ro,nodev - ext4 /dev/a rw", "nosuid"},
		{"mount 1 2 0:1 / /usr ro,nosuid - ext4 /dev/a rw", "nodev"},
	} {
		got := compare(account{home: "/home/a", ws: "/home/a/ws", uid: 1, gid: 1, secrets: secrets}, outside, c.inside+"\n")
		if len(got.grown) != 1 || !strings.Contains(got.grown[0], c.grown) {
			t.Errorf("%s: got %q, want %q named", c.inside, got.grown, c.grown)
		}
	}
	if same := compare(account{home: "/home/a", ws: "/home/a/ws", weak: true, secrets: nil}, outside, strings.ReplaceAll(outside, "descriptor 3: open\n", "")); len(same.grown) > 0 {
		t.Errorf("got %q grown, want nothing where all is as outside", same.grown)
	}
}
