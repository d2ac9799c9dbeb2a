package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/state"
)

func (c *commandLine) review() *cobra.Command {
	var r reviewer
	cmd := c.stateCommand("review NAME [PATH…]", "Show what a session changed copy-on-write", cobra.MinimumNArgs(1), func(args []string) error {
		k, err := lookAt(args[0])
		if err != nil {
			return err
		}
		defer k.close()
		if err := k.unfinished(); err != nil {
			c.voice.warn(err.Error())
			c.voice.hint(hintOf(err))
		}
		if k.entry.Live {
			c.voice.warn("the session runs: this is a moving picture")
		}
		all, err := k.pick(args[1:])
		if err != nil {
			return err
		}
		return r.print(k, all)
	})
	cmd.Long = "Compares what a session wrote into its copy-on-write trees with the host as it is now.\n" +
		"PATH is absolute, relative to the working directory if that lies in the tree, else to the tree."
	f := cmd.Flags()
	f.BoolVar(&r.stat, "stat", false, "print the changes without their content")
	f.BoolVar(&r.names, "name-only", false, "print only the paths, escaped, one a line")
	f.BoolVar(&r.json, "json", false, "print JSON")
	f.BoolVar(&r.full, "full", false, "print all lines of long differences")
	cmd.MarkFlagsMutuallyExclusive("stat", "name-only", "json")
	return cmd
}

// reviewer prints changes.
type reviewer struct{ stat, names, json, full bool }

func (r reviewer) print(k *keptFiles, all []picked) error {
	if r.json {
		return printJSON(reviewJSON(k, all))
	}
	w := bufio.NewWriterSize(os.Stdout, 64<<10)
	return errors.Join(r.pages(w, all), w.Flush())
}

func (r reviewer) pages(w io.Writer, all []picked) error {
	p := page{w: w, color: newVoice(os.Stdout).color, full: r.full}
	for _, one := range all {
		switch {
		case r.names:
			for _, c := range one.changes {
				fmt.Fprintln(w, audit.Escape(c.Path))
			}
			continue
		case r.stat:
			p.head(one)
			for _, c := range one.changes {
				p.change(c)
			}
		default:
			p.head(one)
			p.directories(one.changes)
			for _, c := range one.changes {
				p.change(c)
				if err := p.content(one.layer, c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// changeJSON is a change for programs.
type changeJSON struct {
	// Path is escaped where it is not plain text; Raw is then its bytes.
	Path     string     `json:"path"`
	Raw      []byte     `json:"path_base64,omitempty"`
	Kind     state.Kind `json:"kind"`
	Aspects  []string   `json:"aspects,omitempty"`
	Old      *entryJSON `json:"old,omitempty"`
	New      *entryJSON `json:"new,omitempty"`
	From     string     `json:"renamed_from,omitempty"`
	Conflict string     `json:"conflict,omitempty"`
	Held     string     `json:"held,omitempty"`
	Dropped  []string   `json:"dropped,omitempty"`
	Leads    bool       `json:"leads_out,omitempty"`
	Runs     string     `json:"runs,omitempty"`
}

type entryJSON struct {
	Type   state.Type `json:"type"`
	Mode   string     `json:"mode"`
	Size   int64      `json:"size"`
	Target string     `json:"target,omitempty"`
}

func changesJSON(changes []state.Change) []changeJSON {
	out := []changeJSON{}
	for _, c := range changes {
		j := changeJSON{
			Path: audit.Escape(c.Path), Kind: c.Kind, Aspects: c.Aspects, Old: entryOfJSON(c.Old), New: entryOfJSON(c.New), From: audit.Escape(c.From),
			Conflict: c.Conflict, Held: c.Held, Dropped: c.Dropped, Leads: c.Leads, Runs: c.Runs,
		}
		if j.Path != c.Path {
			j.Raw = []byte(c.Path)
		}
		out = append(out, j)
	}
	return out
}

func entryOfJSON(e state.Entry) *entryJSON {
	if e.Type == state.Absent {
		return nil
	}
	return &entryJSON{e.Type, fmt.Sprintf("%04o", e.Mode), e.Size, audit.Escape(e.Target)}
}

func reviewJSON(k *keptFiles, all []picked) any {
	type layer struct {
		Layer      string       `json:"layer"`
		Target     string       `json:"target"`
		Method     string       `json:"method"`
		Unfinished bool         `json:"unfinished_commit,omitempty"`
		Changes    []changeJSON `json:"changes"`
	}
	out := struct {
		Session string  `json:"session"`
		Running bool    `json:"running"`
		Layers  []layer `json:"layers"`
	}{k.entry.Name, k.entry.Live, []layer{}}
	for _, p := range all {
		out.Layers = append(out.Layers, layer{p.layer.Name, p.layer.Target, p.layer.Method, p.layer.Unfinished(), changesJSON(p.changes)})
	}
	return out
}
