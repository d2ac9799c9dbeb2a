package main

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/state"
)

// Bounds of what review prints of one file, and of one line.
const (
	reviewLines = 400
	reviewWidth = 2000
)

// page prints changes for people. Every name and line of the agent's is escaped.
type page struct {
	w     io.Writer
	color bool
	full  bool
}

func (p page) paint(code, text string) string {
	if !p.color || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// count says how many changes of each kind there are, and how much is new.
func count(changes []state.Change) string {
	kinds, bytes := map[state.Kind]int{}, int64(0)
	for _, c := range changes {
		kinds[c.Kind]++
		bytes += c.New.Size
	}
	var parts []string
	for _, k := range []state.Kind{state.Added, state.Modified, state.Deleted} {
		if kinds[k] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", kinds[k], k))
		}
	}
	if len(parts) == 0 {
		return "no changes"
	}
	return strings.Join(parts, ", ") + ", " + sized(bytes)
}

func sized(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func (p page) head(one picked) {
	fmt.Fprintf(p.w, "%s: %s\n", p.paint("1", audit.Escape(one.layer.Target)), count(one.changes))
}

// directories sums up by directory, two levels deep.
func (p page) directories(changes []state.Change) {
	by := map[string][]state.Change{}
	for _, c := range changes {
		dir := path.Dir(c.Path)
		if parts := strings.SplitN(dir, "/", 3); len(parts) > 2 {
			dir = parts[0] + "/" + parts[1]
		}
		by[dir] = append(by[dir], c)
	}
	if len(by) < 2 {
		return
	}
	for _, dir := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(p.w, "  %s/: %s\n", audit.Escape(dir), count(by[dir]))
	}
}

// change prints one line, and what is to be known of the change.
func (p page) change(c state.Change) {
	mark := map[state.Kind]string{state.Added: p.paint("32", "A"), state.Modified: p.paint("33", "M"), state.Deleted: p.paint("31", "D")}[c.Kind]
	fmt.Fprintf(p.w, "%s %s%s\n", mark, audit.Escape(c.Path), p.details(c))
	for _, n := range notes(c) {
		fmt.Fprintf(p.w, "  %s %s\n", p.paint("31", "!"), audit.Escape(n))
	}
}

func (p page) details(c state.Change) string {
	var parts []string
	if c.From != "" {
		parts = append(parts, "renamed from "+audit.Escape(c.From))
	}
	switch e := c.New; {
	case c.Kind == state.Deleted:
		parts = append(parts, string(c.Old.Type))
	case e.Type == state.Symlink:
		parts = append(parts, "symlink to "+audit.Escape(e.Target))
	case e.Type == state.File && c.Kind == state.Added:
		parts = append(parts, fmt.Sprintf("%04o", e.Mode), sized(e.Size))
	case e.Type == state.File && slices.Contains(c.Aspects, "content"):
		parts = append(parts, fmt.Sprintf("%s -> %s", sized(c.Old.Size), sized(e.Size)))
	case c.Kind == state.Added:
		parts = append(parts, string(e.Type))
	}
	if slices.Contains(c.Aspects, "type") {
		parts = append(parts, fmt.Sprintf("%s -> %s", c.Old.Type, c.New.Type))
	}
	if slices.Contains(c.Aspects, "mode") {
		parts = append(parts, fmt.Sprintf("mode %04o -> %04o", c.Old.Mode, c.New.Mode))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// notes says what stands in the way of a commit, or needs a second look.
func notes(c state.Change) (out []string) {
	if c.Held != "" {
		out = append(out, "never committed: "+c.Held)
	}
	if c.Conflict != "" {
		out = append(out, "conflict: "+c.Conflict)
	}
	if c.Runs != "" {
		out = append(out, "executed later: "+c.Runs)
	}
	if c.Leads {
		out = append(out, "the link points out of the tree")
	}
	if len(c.Dropped) > 0 {
		out = append(out, "not carried over: "+strings.Join(c.Dropped, ", "))
	}
	return out
}

// content prints a unified diff, or what a file is.
func (p page) content(l *state.Layer, c state.Change) error {
	t, err := l.Text(c)
	if err != nil {
		return err
	}
	if t.Summary != "" {
		fmt.Fprintf(p.w, "  %s\n", t.Summary)
	}
	lines := 0
	for line := range strings.Lines(t.Unified) {
		if lines++; lines > reviewLines && !p.full {
			fmt.Fprintf(p.w, "  %s\n", p.paint("36", fmt.Sprintf("… %d more lines: --full prints them", strings.Count(t.Unified, "\n")-reviewLines)))
			return nil
		}
		fmt.Fprintln(p.w, p.paint(lineColor(line), p.line(line)))
	}
	return nil
}

func lineColor(line string) string {
	switch line[0] {
	case '+':
		return "32"
	case '-':
		return "31"
	case '@':
		return "36"
	}
	return ""
}

// line escapes a line of a file; tabs are text.
func (p page) line(s string) string {
	s = strings.TrimSuffix(s, "\n")
	cut := ""
	if len(s) > reviewWidth && !p.full {
		cut = fmt.Sprintf(" … %d more bytes: --full prints them", len(s)-reviewWidth)
		s = strings.ToValidUTF8(s[:reviewWidth], "")
	}
	parts := strings.Split(s, "\t")
	for i := range parts {
		parts[i] = audit.Escape(parts[i])
	}
	return strings.Join(parts, "\t") + cut
}
