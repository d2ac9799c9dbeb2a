package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/state"
)

// committing are the flags of commit.
type committing struct {
	state.CommitOptions
	dryRun, repair, json bool
}

func (c *commandLine) commit() *cobra.Command {
	var o committing
	cmd := c.stateCommand("commit NAME [PATH…]", "Write what a session changed copy-on-write to the host", cobra.MinimumNArgs(1), func(args []string) error {
		k, err := takeOver(args[0], "commit")
		if err != nil {
			return err
		}
		defer k.close()
		if o.repair {
			return c.repair(k, o)
		}
		if err := k.unfinished(); err != nil {
			return err
		}
		return c.commitAll(k, args[1:], o)
	})
	cmd.Long = "Writes changes of a session's copy-on-write trees to the host, all or those at and below the paths.\n" +
		"It is refused, with a list and before anything is touched, where the host changed since the run began,\n" +
		"where the host would execute a file later, and where a symbolic link points out of the tree.\n" +
		"A commit that was broken off loses nothing: --repair finishes it."
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be done and do nothing")
	f.BoolVar(&o.repair, "repair", false, "finish a commit that was broken off")
	f.BoolVar(&o.Force, "force", false, "overwrite what changed on the host meanwhile")
	f.BoolVar(&o.AcceptExec, "accept-exec", false, "commit files that the host executes later, too")
	f.BoolVar(&o.ExceptExec, "except-exec", false, "commit all but files that the host executes later")
	f.BoolVar(&o.AcceptLinks, "accept-links", false, "commit symbolic links that point out of the tree, too")
	f.BoolVar(&o.ExceptLinks, "except-links", false, "commit all but symbolic links that point out of the tree")
	f.BoolVar(&o.json, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("accept-exec", "except-exec")
	cmd.MarkFlagsMutuallyExclusive("accept-links", "except-links")
	cmd.MarkFlagsMutuallyExclusive("repair", "dry-run")
	return cmd
}

// planned is a layer with its plan.
type planned struct {
	layer *state.Layer
	plan  state.Plan
}

// commitAll plans all layers before it touches anything.
func (c *commandLine) commitAll(k *keptFiles, paths []string, o committing) error {
	all, err := k.pick(paths)
	if err != nil {
		return err
	}
	var plans []planned
	for _, p := range all {
		options := o.CommitOptions
		options.Paths = p.paths
		plans = append(plans, planned{p.layer, p.layer.Plan(p.all, options)})
	}
	if err := c.refused(plans); err != nil {
		return err
	}
	done := 0
	for _, p := range plans {
		done += len(p.plan.Chosen)
		if o.dryRun {
			continue
		}
		if err := p.layer.Commit(p.plan); err != nil {
			return &hintedError{fmt.Errorf("commit to %q: %w", p.layer.Target, err), "nothing is lost: hermes-wrap commit --repair " + k.entry.Name + " finishes it"}
		}
	}
	return c.committed(plans, o, done)
}

// refused lists what refuses a commit.
func (c *commandLine) refused(plans []planned) error {
	var conflicts, exec, links int
	for _, p := range plans {
		conflicts += c.list(p.plan.Conflicts, func(s state.Change) string { return "conflict: " + s.Path + ": " + s.Conflict })
		exec += c.list(p.plan.Exec, func(s state.Change) string { return "executed later: " + s.Path + ": " + s.Runs })
		links += c.list(p.plan.Links, func(s state.Change) string {
			return "link out of the tree: " + s.Path + " -> " + s.New.Target
		})
	}
	switch {
	case conflicts > 0:
		return &hintedError{fmt.Errorf("the host changed meanwhile in %d places; nothing was committed", conflicts), "review them; --force overwrites the host's"}
	case exec > 0:
		return &hintedError{fmt.Errorf("the host would execute %d of the files later; nothing was committed", exec), "review them; --except-exec commits the others, --accept-exec these too"}
	case links > 0:
		return &hintedError{fmt.Errorf("%d symbolic links point out of the tree; nothing was committed", links), "review them; --except-links commits the others, --accept-links these too"}
	}
	return nil
}

// listed bounds a list of changes in a message.
const listed = 50

func (c *commandLine) list(changes []state.Change, words func(state.Change) string) int {
	for i, one := range changes {
		if i == listed {
			c.voice.warn(fmt.Sprintf("… and %d more", len(changes)-listed))
			break
		}
		c.voice.warn(audit.Escape(words(one)))
	}
	return len(changes)
}

func (c *commandLine) committed(plans []planned, o committing, done int) error {
	var chosen, held []state.Change
	for _, p := range plans {
		chosen, held = append(chosen, p.plan.Chosen...), append(held, p.plan.Held...)
	}
	c.list(held, func(s state.Change) string { return "not committed: " + s.Path + ": " + s.Held })
	if o.json {
		return printJSON(map[string]any{"dry_run": o.dryRun, "committed": changesJSON(chosen), "held": changesJSON(held)})
	}
	if o.dryRun {
		p := page{w: c.out()}
		for _, one := range chosen {
			p.change(one)
		}
		c.voice.note(plural(done, "change") + " would be committed")
		return nil
	}
	c.voice.note(plural(done, "change") + " committed")
	return nil
}

// repair finishes commits that were broken off.
func (c *commandLine) repair(k *keptFiles, o committing) (err error) {
	done := 0
	for _, l := range k.layers {
		if !l.Unfinished() {
			continue
		}
		done++
		if one := l.Repair(o.Force); one != nil {
			err = errors.Join(err, &hintedError{fmt.Errorf("finish the commit to %q: %w", l.Target, one), "look at the host's file; --force overwrites it"})
		}
	}
	if err == nil {
		c.voice.note(map[bool]string{true: "the commit is finished", false: "no commit was broken off"}[done > 0])
	}
	return err
}

func (c *commandLine) discard() *cobra.Command {
	return c.stateCommand("discard NAME [PATH…]", "Drop what a session changed copy-on-write", cobra.MinimumNArgs(1), func(args []string) error {
		k, err := takeOver(args[0], "discard")
		if err != nil {
			return err
		}
		defer k.close()
		if err := errors.Join(k.none(), k.unfinished()); err != nil {
			return err
		}
		if len(args) == 1 {
			for _, l := range k.layers {
				if err := l.DiscardAll(); err != nil {
					return fmt.Errorf("discard layer %q: %w", l.Name, err)
				}
			}
			c.voice.note("all changes are discarded")
			return nil
		}
		all, err := k.pick(args[1:])
		if err != nil {
			return err
		}
		done := 0
		for _, p := range all {
			dropped, err := p.layer.Discard(p.all, p.paths)
			if err != nil {
				return err
			}
			done += len(dropped)
		}
		c.voice.note(plural(done, "change") + " discarded")
		return nil
	})
}
