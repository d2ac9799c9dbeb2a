package escape

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func values(t *testing.T, c Case, seed int64, n int) []string {
	t.Helper()
	all, err := variantsOf(c, seed, n)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range all {
		out = append(out, v.Value)
	}
	return out
}

// examples are arguments for each generator; random says whether the seed
// matters.
var examples = map[string]struct {
	args   string
	random bool
}{
	"paths": {"$OUTSIDE/secret", true}, "hosts": {"denied.test 169.254.169.254", true}, "urlpaths": {"/secret", true}, "words": {"a b c", false},
	"syscalls": {"keyctl", false}, "highbits": {"0x1", true}, "headers": {"Content-Length:5", true}, "timing": {"", true},
}

func TestGenerators(t *testing.T) {
	for name := range generators {
		e, ok := examples[name]
		if !ok {
			t.Errorf("%s: no example", name)
			continue
		}
		c := Case{ID: "A1", Variants: name + " " + e.args}
		one, again, other := values(t, c, 1, 8), values(t, c, 1, 8), values(t, c, 2, 8)
		if !slices.Equal(one, again) {
			t.Errorf("%s: the same seed made %q and %q", name, one, again)
		}
		if same := slices.Equal(one, other); same == e.random {
			t.Errorf("%s: another seed: got the same %v, want %v", name, same, !e.random)
		}
		sorted := slices.Clone(one)
		slices.Sort(sorted)
		if n := len(slices.Compact(sorted)); n != len(one) {
			t.Errorf("%s: got %d values, %d different", name, len(one), n)
		}
		short := values(t, c, 1, 2)
		if e.random && len(one) != len(short)+6 {
			t.Errorf("%s: got %d values and %d in short, want 6 more", name, len(one), len(short))
		}
		if elsewhere := values(t, Case{ID: "A2", Variants: c.Variants}, 1, 8); e.random && slices.Equal(one, elsewhere) {
			t.Errorf("%s: another case got the same values", name)
		}
	}
}

// TestPathsLead holds every spelling of a path to be one.
func TestPathsLead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range values(t, Case{ID: "A1", Variants: "paths " + file}, 7, 50) {
		if b, err := os.ReadFile(p); err != nil || string(b) != "x" {
			t.Errorf("%q: got %q, %v", p, b, err)
		}
	}
}

func TestAddressForms(t *testing.T) {
	got := values(t, Case{ID: "A1", Variants: "hosts 169.254.169.254"}, 1, 0)
	for _, want := range []string{"2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.16689662", "::ffff:a9fe:a9fe"} {
		if !slices.Contains(got, want) {
			t.Errorf("got %q, want %q among them", got, want)
		}
	}
}

func TestURLPathsAreNotPlain(t *testing.T) {
	for _, p := range values(t, Case{ID: "A1", Variants: "urlpaths /secret"}, 1, 50) {
		if strings.HasPrefix(p, "/public/") {
			continue
		}
		if u, err := url.PathUnescape(p); err != nil || !strings.Contains(strings.ToLower(u), "secret") {
			t.Errorf("%q: got %q, %v", p, u, err)
		}
	}
}

func TestFill(t *testing.T) {
	got := variant{Value: "$OUTSIDE/secret $PORT $HOME"}.fill(map[string]string{"OUTSIDE": "/o", "PORT": "1"})
	if want := "/o/secret 1 $HOME"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
