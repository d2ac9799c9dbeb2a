package sandbox

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteTable prints the findings for people: a line each, then what to do about
// the ones that are missing. The JSON form is the Findings themselves.
func (fs Findings) WriteTable(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "\tFEATURE\tFOUND\tNEEDED BY")
	for _, f := range fs {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\n", f.mark(), f.Feature, f.Found, f.NeededBy)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, f := range fs {
		if f.OK || f.Remedy == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s: needed %s\n  to do: %s\n", f.Feature, f.Needed, f.Remedy); err != nil {
			return err
		}
	}
	return nil
}

// mark is a word, not a colour or a symbol, so that it can be read and searched.
func (f Finding) mark() string {
	switch {
	case f.Info && f.OK:
		return "info"
	case f.OK:
		return "ok"
	case f.Untried:
		return "-"
	case f.Info:
		return "absent"
	}
	return "MISSING"
}
