package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/state"
)

func (c *commandLine) out() io.Writer { return os.Stdout }

// shots are a session's snapshots.
func (k *keptFiles) shots() state.Snapshots {
	return state.Snapshots{Layers: k.layersDir(), Dir: filepath.Join(k.entry.Path, "snapshots")}
}

func (c *commandLine) snapshot() *cobra.Command {
	var as string
	var asJSON bool
	cmd := c.stateCommand("snapshot NAME", "Keep a copy of what a session changed, under a label", cobra.ExactArgs(1), func(args []string) error {
		k, err := takeOver(args[0], "snapshot")
		if err != nil {
			return err
		}
		defer k.close()
		if err := errors.Join(k.none(), k.unfinished()); err != nil {
			return err
		}
		s, err := k.shots().Make(as)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(s)
		}
		fmt.Fprintln(c.out(), s.Label)
		return nil
	})
	cmd.Flags().StringVar(&as, "as", "", "`LABEL` of the snapshot (default: the time)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (c *commandLine) snapshots() *cobra.Command {
	var asJSON bool
	cmd := c.stateCommand("snapshots NAME", "List a session's snapshots", cobra.ExactArgs(1), func(args []string) error {
		k, err := lookAt(args[0])
		if err != nil {
			return err
		}
		defer k.close()
		all, err := k.shots().List()
		if err != nil {
			return err
		}
		if asJSON {
			if all == nil {
				all = []state.Snapshot{}
			}
			return printJSON(all)
		}
		for _, s := range all {
			fmt.Fprintf(c.out(), "%s  %s  %d files, %s\n", audit.Escape(s.Label), s.Created.Local().Format(time.DateTime), s.Files, sized(s.Bytes))
		}
		return nil
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(c.stateCommand("rm NAME LABEL…", "Remove snapshots", cobra.MinimumNArgs(2), func(args []string) error {
		k, err := takeOver(args[0], "removing a snapshot")
		if err != nil {
			return err
		}
		defer k.close()
		for _, l := range args[1:] {
			if err := k.shots().Remove(l); err != nil {
				return err
			}
		}
		return nil
	}))
	return cmd
}

func (c *commandLine) restore() *cobra.Command {
	return c.stateCommand("restore NAME LABEL", "Put a snapshot in the place of what a session changed", cobra.ExactArgs(2), func(args []string) error {
		k, err := takeOver(args[0], "restore")
		if err != nil {
			return err
		}
		defer k.close()
		// What a broken commit has left would be replaced with its journal.
		if err := k.unfinished(); err != nil {
			return err
		}
		if err := k.shots().Restore(args[1]); err != nil {
			return err
		}
		c.voice.note(fmt.Sprintf("session %q has the files of snapshot %q", k.entry.Name, args[1]))
		return nil
	})
}
