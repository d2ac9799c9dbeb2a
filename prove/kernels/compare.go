package kernels

import (
	"fmt"
	"os"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// compare holds what was said against what is expected, or writes it down.
func compare(root string, results runs, p *report.Part) error {
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
		base := results.base(r)
		for _, name := range r.ordered {
			v := r.judged[name]
			at := r.boot.Name + "/" + name
			for _, w := range v.Wrong {
				p.Failed = append(p.Failed, fmt.Sprintf("%s, %s: %s", version, at, w))
			}
			if v.Said == "" {
				continue
			}
			v.Said = changes(base, at, v.Said)
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

// changes keeps of what doctor says the lines that the kernel's plain boot does
// not have, so that a file shows what a boot makes of a kernel.
func changes(base *result, at, said string) string {
	part := strings.Split(at, "/")
	plain := "plain/doctor/" + part[len(part)-1]
	if base == nil || part[2] != "doctor" || at == boots[0].Name+"/"+plain {
		return said
	}
	same := map[string]bool{}
	for line := range strings.Lines(base.judged[plain].Said) {
		same[strings.TrimSpace(line)] = true
	}
	var kept []string
	for line := range strings.Lines(said) {
		if t := strings.TrimSpace(line); !same[t] || strings.HasPrefix(t, "exit ") {
			kept = append(kept, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(kept, "\n")
}

// base is the plain boot of the same kernel.
func (rs runs) base(r *result) *result {
	for _, other := range rs {
		if other.kernel == r.kernel && other.boot.Name == boots[0].Name {
			return other
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

func tables(results runs) []report.Table {
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
