package kernels

import (
	"fmt"
	"os"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// compare holds what was said against what is expected, or writes it down.
func compare(root string, results []*result, p *report.Part) error {
	update := os.Getenv("HERMES_UPDATE") != ""
	for _, r := range results {
		version := r.kernel.version()
		want, of, err := readGolden(root, version)
		if err != nil {
			return err
		}
		if update && of != version {
			want = golden{}
		}
		for _, name := range r.ordered {
			v := r.judged[name]
			at := r.boot.Name + "/" + name
			for _, w := range v.Wrong {
				p.Failed = append(p.Failed, fmt.Sprintf("%s, %s: %s", version, at, w))
			}
			if v.Said == "" {
				continue
			}
			if update {
				want[at] = v.Said
			} else if d := difference(want[at], v.Said); d != "" {
				p.Failed = append(p.Failed, fmt.Sprintf("%s, %s: not as expected of %s: %s", version, at, of, d))
			}
		}
		if update {
			if err := want.write(goldenFile(root, version)); err != nil {
				return err
			}
		}
	}
	return nil
}

// difference is the first line in which two texts differ.
func difference(want, got string) string {
	if want == got {
		return ""
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		a, b := "nothing", "nothing"
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("got %q, want %q", b, a)
		}
	}
	return ""
}

func tables(results []*result) []report.Table {
	t := report.Table{Title: "Boots", Columns: []string{"kernel", "boot", "case", "who", "check", "result"}}
	for _, r := range results {
		for _, name := range r.ordered {
			if v := r.judged[name]; v.Short != "" {
				part := strings.Split(name, "/")
				t.Rows = append(t.Rows, []string{r.kernel.version(), r.boot.Name, part[0], part[2], part[1], v.Short})
			}
		}
	}
	return []report.Table{t}
}
