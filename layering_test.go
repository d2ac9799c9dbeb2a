// Package hermeswrap_test holds what the repository promises as a whole: who
// imports whom, and what the release binary weighs.
package hermeswrap_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/hermes-wrap/hermes-wrap"

// siblings says which packages of ours a package may import, tests not counted.
// A package that is not listed may not exist: adding one is a decision.
var siblings = map[string][]string{
	"cmd/hermes-wrap": {
		"audit", "hermes", "netpolicy", "netpolicy/credential", "netpolicy/docker", "netpolicy/inference", "netpolicy/proxy", "policy", "profiles", "registries", "sandbox", "secret", "session", "state", "supervise",
	},
	"policy":               {},
	"policy/internal/gen":  {"policy"},
	"sandbox":              {"policy"},
	"netpolicy":            {"netpolicy/strictjson", "policy"},
	"netpolicy/strictjson": {},
	"netpolicy/credential": {"netpolicy", "netpolicy/strictjson", "policy"},
	"netpolicy/docker":     {"netpolicy/strictjson", "policy"},
	"netpolicy/inference":  {"netpolicy", "netpolicy/strictjson", "policy"},
	"netpolicy/proxy":      {"audit", "netpolicy", "netpolicy/credential", "netpolicy/docker", "netpolicy/inference", "netpolicy/strictjson", "policy"},
	"hermes":               {},
	"secret":               {"policy"},
	"session":              {},
	"state":                {},
	"state/overlaytest":    {},
	"audit":                {},
	"profiles":             {},
	"supervise":            {"policy"},
	"registries":           {},
}

// owners says where a library of others may be imported outside of tests. One
// file is the aim; the packages named here wrap it for all others.
var owners = map[string][]string{
	"github.com/aws/aws-sdk-go-v2":                  {"netpolicy/credential"},
	"github.com/aymanbagabas/go-udiff":              {"state"},
	"github.com/bmatcuk/doublestar/v4":              {"policy", "sandbox"},
	"github.com/go-json-experiment/json":            {"netpolicy/strictjson"},
	"github.com/gobwas/ws":                          {"netpolicy/proxy"},
	"github.com/vektah/gqlparser/v2":                {"netpolicy/proxy"},
	"github.com/zalando/go-keyring":                 {"secret"},
	"github.com/containerd/console":                 {"sandbox"},
	"github.com/coreos/go-systemd/v22":              {"cmd/hermes-wrap"},
	"github.com/google/nftables":                    {"sandbox"},
	"github.com/landlock-lsm/go-landlock":           {"sandbox"},
	"github.com/moby/profiles/seccomp":              {}, // the tests' baseline
	"github.com/opencontainers/cgroups":             {"sandbox"},
	"github.com/opencontainers/runc":                {"sandbox"},
	"github.com/pavlo-v-chernykh/keystore-go/v4":    {"sandbox"},
	"github.com/seccomp/libseccomp-golang":          {"sandbox"},
	"github.com/sirupsen/logrus":                    {"sandbox"}, // to silence libcontainer's
	"github.com/spf13/cobra":                        {"cmd/hermes-wrap"},
	"github.com/vishvananda/netlink":                {"sandbox"},
	"go.yaml.in/yaml/v4":                            {"hermes", "policy"},
	"golang.org/x/net":                              {"netpolicy", "netpolicy/proxy", "policy"},
	"golang.org/x/sys":                              {"audit", "cmd/hermes-wrap", "netpolicy/proxy", "sandbox", "session", "state", "state/overlaytest"},
	"kernel.org/pub/linux/libs/security/libcap/psx": {"sandbox"},
}

// without are packages that a package must not even reach through others.
var without = map[string][]string{
	"policy":    {"net/http", "os/exec", "golang.org/x/sys"},
	"netpolicy": {"net/http", "os/exec", "golang.org/x/sys", "crypto/tls"},
}

// listed is what "go list -json" says of a package.
type listed struct {
	ImportPath string
	Name       string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-tags", "seccomp netgo osusergo", "-json=ImportPath,Name,Imports,Deps", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v: %s", err, stderr.String())
	}
	all := map[string]listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("read the list: %v", err)
		}
		all[strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")] = p
	}
}

// product tells a package that ends up in the binary or makes a part of it: not
// the tools of tests and measurements, which import what they like and which nobody imports.
func product(name string, p listed) bool {
	top, _, _ := strings.Cut(name, "/")
	return name != "" && p.Name != "" && !slices.Contains([]string{"bench", "prove", "test", "testdata"}, top)
}

func TestSiblings(t *testing.T) {
	for name, p := range list(t) {
		if !product(name, p) {
			continue
		}
		may, known := siblings[name]
		if !known {
			t.Errorf("%s: got a package that siblings does not list", name)
			continue
		}
		for _, i := range p.Imports {
			sibling, ours := strings.CutPrefix(i, module+"/")
			if ours && !slices.Contains(may, sibling) {
				t.Errorf("%s: got an import of %s, want only %v", name, sibling, may)
			}
		}
	}
}

func TestLibrariesHaveOwners(t *testing.T) {
	libraries := slices.Collect(maps.Keys(owners))
	used := map[string]bool{}
	for name, p := range list(t) {
		if !product(name, p) {
			continue
		}
		for _, i := range p.Imports {
			first, _, _ := strings.Cut(i, "/")
			if !strings.Contains(first, ".") || within(i, module) {
				continue
			}
			at := slices.IndexFunc(libraries, func(l string) bool { return within(i, l) })
			if at < 0 {
				t.Errorf("%s: got an import of %s, which owners does not list", name, i)
				continue
			}
			used[libraries[at]] = true
			if !slices.Contains(owners[libraries[at]], name) {
				t.Errorf("%s: got an import of %s, want it in %v alone", name, i, owners[libraries[at]])
			}
		}
	}
	for library, packages := range owners {
		if len(packages) > 0 && !used[library] {
			t.Errorf("%s: got no import, want the entry removed", library)
		}
	}
}

func TestReach(t *testing.T) {
	all := list(t)
	for name, never := range without {
		for _, dep := range all[name].Deps {
			for _, n := range never {
				if within(dep, n) {
					t.Errorf("%s: got %s among what it reaches, want no %s", name, dep, n)
				}
			}
		}
	}
}

// within tells whether an import path is a module or package, or lies below it.
func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

func TestWithin(t *testing.T) {
	if within(path.Join(module, "policyx"), path.Join(module, "policy")) {
		t.Error("got policyx within policy, want it apart")
	}
}
