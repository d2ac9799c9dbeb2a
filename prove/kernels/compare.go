package kernels

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
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
		if update {
			if want, err = readOwn(root, version); err != nil {
				return err
			}
		}
		for _, name := range r.ordered {
			v := r.judged[name]
			at := r.boot.Name + "/" + name
			for _, w := range v.Wrong {
				p.Failed = append(p.Failed, fmt.Sprintf("%s, %s: %s", version, at, w))
			}
			for _, m := range v.Missing {
				m.ID += " on " + version
				if !slices.Contains(p.Missing, m) {
					p.Missing = append(p.Missing, m)
				}
			}
			if v.Said == "" {
				continue
			}
			v.Said = changes(want, at, v.Said)
			if update {
				want[at] = v.Said
			} else if d := difference(want[at], sameABI(want[at], v.Said, of != version)); d != "" {
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
func changes(expected golden, at, said string) string {
	part := strings.Split(at, "/")
	plain := boots[0].Name + "/plain/doctor/" + part[len(part)-1]
	if part[2] != "doctor" || at == plain {
		return said
	}
	same := map[string]bool{}
	for line := range strings.Lines(expected[plain]) {
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

var abiFound = regexp.MustCompile(`\bABI ([0-9]+) `)

// sameABI takes the Landlock of a kernel that nothing was written down for yet for
// what is expected, when it is no older.
func sameABI(want, got string, unknown bool) string {
	w, g := abiFound.FindStringSubmatch(want), abiFound.FindStringSubmatch(got)
	if !unknown || w == nil || g == nil {
		return got
	}
	a, _ := strconv.Atoi(w[1])
	if b, _ := strconv.Atoi(g[1]); b < a {
		return got
	}
	return strings.Replace(got, g[0], w[0], 1)
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

// tables show what each boot came to, and how long it took.
func tables(results runs) []report.Table {
	said := report.Table{Title: "What was said and enforced", Columns: []string{"kernel", "boot", "case", "an ordinary user", "root"}}
	times := report.Table{Title: "Boots", Columns: []string{"kernel", "Landlock ABI", "boot", "what it is", "checks", "took"}}
	for _, r := range results {
		times.Rows = append(times.Rows, []string{
			r.kernel.release, r.abi(), r.boot.Name, r.boot.Title, strconv.Itoa(len(r.judged)), r.took.Round(time.Second).String(),
		})
		for _, c := range r.boot.Cases {
			user, root := r.cell(c, protocol.User), r.cell(c, protocol.Root)
			if user != "" || root != "" {
				said.Rows = append(said.Rows, []string{r.kernel.version(), r.boot.Name, c.Name, user, root})
			}
		}
	}
	return []report.Table{times, said, results.escapes()}
}

// cell is what the checks of one account came to.
func (r *result) cell(c variant, user string) string {
	var all []string
	for _, name := range r.ordered {
		part := strings.Split(name, "/")
		if v := r.judged[name]; part[0] == c.Name && part[2] == user && v.Short != "" && v.Row == nil {
			all = append(all, part[1]+": "+v.Short)
		}
	}
	return strings.Join(all, "; ")
}

// abi is what doctor found of Landlock.
func (r *result) abi() string {
	for _, name := range r.ordered {
		for line := range strings.Lines(r.judged[name].Said) {
			if part := strings.Split(line, " | "); len(part) > 2 && part[1] == "Landlock" {
				return strings.TrimPrefix(part[2], "ABI ")
			}
		}
	}
	return "?"
}
