package supply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// cLibrary is a library of C that is linked into the binary.
type cLibrary struct {
	name, licence, supplier string
	// archives and objects are what the linker takes of it, by the name of the file.
	archives []string
	// debian is the package that it comes from here; without one, or elsewhere,
	// the command says its version.
	debian  string
	version []string
	// texts are files of packaging/licences.
	texts []string
}

// cLibraries are all that may be linked.
var cLibraries = []cLibrary{
	{
		"libseccomp", "LGPL-2.1-only", "the libseccomp project",
		[]string{"libseccomp.a"},
		"libseccomp-dev",
		[]string{"pkg-config", "--modversion", "libseccomp"},
		[]string{"libseccomp.txt", "LGPL-2.1.txt"},
	},
	{
		"glibc", "LGPL-2.1-or-later", "the GNU project",
		[]string{"libc.a", "libpthread.a", "libdl.a", "librt.a", "libm.a", "libresolv.a", "crt1.o", "crti.o", "crtn.o"},
		"libc6-dev",
		[]string{"getconf", "GNU_LIBC_VERSION"},
		[]string{"glibc.txt", "LGPL-2.1.txt"},
	},
	{
		"libgcc", "GPL-3.0-or-later WITH GCC-exception-3.1", "the GNU project",
		[]string{"libgcc.a", "libgcc_eh.a", "crtbeginT.o", "crtend.o"},
		"",
		[]string{"gcc", "-dumpfullversion"},
		[]string{"libgcc.txt", "GPL-3.txt"},
	},
}

// CLibraries lists them with the versions of this machine.
func CLibraries(ctx context.Context, root string) (all []Component, err error) {
	for _, l := range cLibraries {
		c := Component{Name: l.name, Licences: []string{l.licence}, Note: "linked statically, from " + l.supplier, Files: map[string]string{}}
		if c.Version, err = l.versionHere(ctx); err != nil {
			return nil, err
		}
		for _, name := range l.texts {
			b, err := os.ReadFile(filepath.Join(root, "packaging", "licences", name))
			if err != nil {
				return nil, err
			}
			c.Files[name] = string(b)
		}
		all = append(all, c)
	}
	return all, nil
}

func (l cLibrary) versionHere(ctx context.Context) (string, error) {
	if l.debian != "" {
		if out, err := output(exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", l.debian)); err == nil && out != "" {
			return out, nil
		}
	}
	out, err := output(exec.CommandContext(ctx, l.version[0], l.version[1:]...))
	fields := strings.Fields(out)
	if err != nil || len(fields) == 0 {
		return "", fmt.Errorf("the version of %s: %w", l.name, err)
	}
	return fields[len(fields)-1], nil
}

// taken finds what the linker says it takes: "(/usr/lib/…/libc.a)printf.o", or the
// object itself.
var taken = regexp.MustCompile(`(?m)^\(?(/[^()\n]+/([^/()\n]+\.[ao]))\)?`)

// strangers links the program once more and gives the names of what the linker took
// that none of the libraries accounts for, and the libraries of which it took something.
func strangers(ctx context.Context, root, out string) (unknown, used []string, err error) {
	// One from before would be found current, and nothing linked.
	if err := os.Remove(out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", tags, "-o", out, "-ldflags", `-s -w -linkmode external -extldflags "-static -Wl,--trace"`, "./cmd/hermes-wrap")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=1")
	text, err := cmd.CombinedOutput()
	if err != nil {
		return nil, nil, fmt.Errorf("link with a trace: %w: %s", err, text)
	}
	unknown, used = account(string(text))
	if len(used) == 0 {
		return nil, nil, fmt.Errorf("the linker told nothing: %s", text)
	}
	return unknown, used, nil
}

// account sorts what a trace names. Objects of Go's linker lie in its directory.
func account(trace string) (unknown, used []string) {
	strange, known := map[string]bool{}, map[string]bool{}
	for _, m := range taken.FindAllStringSubmatch(trace, -1) {
		path, name := m[1], m[2]
		if strings.HasPrefix(filepath.Base(filepath.Dir(path)), "go-link-") {
			continue
		}
		i := slices.IndexFunc(cLibraries, func(l cLibrary) bool { return slices.Contains(l.archives, name) })
		if i < 0 {
			strange[path] = true
			continue
		}
		known[cLibraries[i].name] = true
	}
	return slices.Sorted(maps.Keys(strange)), slices.Sorted(maps.Keys(known))
}
