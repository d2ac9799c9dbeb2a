package kernels

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// golden is what is expected of one kernel: for each boot, variant, check and
// account what is said, to the letter. The files are read by people when they
// change; HERMES_UPDATE=1 writes them.
type golden map[string]string

const goldenHead = "### "

func goldenFile(root, version string) string {
	return filepath.Join(root, "prove", "kernels", "expected", version+".txt")
}

// readGolden gives what is expected of a kernel: what was written down for it,
// and where nothing was, what was for the newest one before it. of is the newest
// whose words are used.
func readGolden(root, version string) (g golden, of string, err error) {
	files, err := filepath.Glob(goldenFile(root, "*"))
	if err != nil {
		return nil, "", err
	}
	var before []string
	for _, f := range files {
		if v := strings.TrimSuffix(filepath.Base(f), ".txt"); !newer(v, version) {
			before = append(before, v)
		}
	}
	slices.SortFunc(before, func(a, b string) int {
		if newer(a, b) {
			return 1
		}
		return -1
	})
	g = golden{}
	for _, of = range before {
		own, err := readOwn(root, of)
		if err != nil {
			return nil, "", err
		}
		maps.Copy(g, own)
	}
	return g, of, nil
}

// readOwn gives what was written down for one kernel, and nothing when nothing was.
func readOwn(root, version string) (golden, error) {
	b, err := os.ReadFile(goldenFile(root, version))
	if errors.Is(err, fs.ErrNotExist) {
		return golden{}, nil
	}
	return parseGolden(string(b)), err
}

func parseGolden(text string) golden {
	g := golden{}
	name := ""
	for line := range strings.Lines(text) {
		if head, ok := strings.CutPrefix(line, goldenHead); ok {
			name = strings.TrimSpace(head)
			g[name] = ""
		} else if name != "" {
			g[name] += line
		}
	}
	for name, said := range g {
		g[name] = strings.TrimRight(said, "\n")
	}
	return g
}

func (g golden) write(file string) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(g)) {
		fmt.Fprintf(&b, "%s%s\n%s\n\n", goldenHead, name, g[name])
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.TrimRight(b.String(), "\n")+"\n"), 0o644)
}

// newer compares two versions of kernels, "6.12" with "6.1".
func newer(a, b string) bool {
	var x, y [2]int
	_, _ = fmt.Sscanf(a, "%d.%d", &x[0], &x[1])
	_, _ = fmt.Sscanf(b, "%d.%d", &y[0], &y[1])
	return slices.Compare(x[:], y[:]) > 0
}
