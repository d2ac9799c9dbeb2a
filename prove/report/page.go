package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Head is what stands above the parts of a page. A page may hold parts of several
// runs; each says for itself which.
type Head struct {
	Kernel, Machine string
	When            time.Time
}

// reasons begin what may stay unexercised: a feature that the kernel or the
// machine lacks. Nothing else may.
var reasons = []string{"kernel: ", "machine: "}

// Faults lists why a part is not green: what failed, and what was left out for
// a reason of its own making. An empty list is green.
func (p Part) Faults() []string {
	faults := slices.Clone(p.Failed)
	for _, m := range p.Missing {
		if !slices.ContainsFunc(reasons, func(r string) bool { return strings.HasPrefix(m.Reason, r) }) {
			faults = append(faults, fmt.Sprintf("%s was not exercised: %s", m.ID, m.Reason))
		}
	}
	return faults
}

// Page is the whole report as Markdown.
func Page(h Head, parts []Part) string {
	var b strings.Builder
	b.WriteString("# Proof\n\nWritten by `make prove`; do not edit. What was tried against the sandbox, on which kernel, what was contained, and what was not\n" +
		"exercised and why. How it is made: [how the proof works](proving.md).\n\n")
	var took time.Duration
	for _, p := range parts {
		took += p.Took
	}
	fmt.Fprintf(&b, "| | |\n|---|---|\n| kernel | %s |\n| machine | %s |\n| written | %s |\n| all parts took | %s |\n\n",
		h.Kernel, h.Machine, h.When.UTC().Format("2006-01-02 15:04 UTC"), took.Round(time.Second))
	summary(&b, parts)
	for _, p := range parts {
		if !p.Absent {
			p.write(&b)
		}
	}
	return b.String()
}

func summary(b *strings.Builder, parts []Part) {
	b.WriteString("| part | version | began | seed | took | result |\n|---|---|---|---|---|---|\n")
	for _, p := range parts {
		if p.Absent {
			fmt.Fprintf(b, "| %s | | | | | **not run** |\n", p.Title)
			continue
		}
		result := "green"
		if faults := p.Faults(); len(faults) > 0 {
			result = fmt.Sprintf("**%d failed**", len(faults))
		}
		if n := len(p.Missing); n > 0 {
			result += fmt.Sprintf(", %d not exercised", n)
		}
		if p.Short {
			result += ", short form"
		}
		fmt.Fprintf(b, "| [%s](#%s) | `%s` | %s | %d | %s | %s |\n", p.Title, anchor(p.Title),
			p.Release, p.Began.UTC().Format("2006-01-02 15:04"), p.Seed, p.Took.Round(time.Second), result)
	}
	b.WriteString("\n")
}

// anchor is the name that a heading has as the target of a link.
func anchor(title string) string {
	return strings.ReplaceAll(strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == ' ', r == '-', r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, title), " ", "-")
}

func (p Part) write(b *strings.Builder) {
	fmt.Fprintf(b, "## %s\n\n", p.Title)
	if p.Intro != "" {
		fmt.Fprintf(b, "%s\n\n", p.Intro)
	}
	list(b, "Failed", p.Faults())
	for _, t := range p.Tables {
		t.write(b)
	}
	if len(p.Missing) > 0 {
		rows := make([][]string, 0, len(p.Missing))
		for _, m := range p.Missing {
			rows = append(rows, []string{m.ID, m.What, m.Reason})
		}
		Table{Title: "Not exercised", Columns: []string{"id", "what", "why"}, Rows: rows}.write(b)
	}
	list(b, "Notes", p.Notes)
}

func list(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "### %s\n\n", title)
	for _, l := range lines {
		fmt.Fprintf(b, "* %s\n", cell(l))
	}
	b.WriteString("\n")
}

func (t Table) write(b *strings.Builder) {
	if t.Title != "" {
		fmt.Fprintf(b, "### %s\n\n", t.Title)
	}
	row(b, t.Columns)
	b.WriteString(strings.Repeat("|---", len(t.Columns)) + "|\n")
	for _, r := range t.Rows {
		row(b, r)
	}
	b.WriteString("\n")
}

func row(b *strings.Builder, cells []string) {
	for _, c := range cells {
		b.WriteString("| " + cell(c) + " ")
	}
	b.WriteString("|\n")
}

// cell keeps a text within its place in a table, whatever an attack printed.
func cell(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return strings.ReplaceAll(s, "|", `\|`)
}
