package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/session"
	"github.com/hermes-wrap/hermes-wrap/state"
)

// keptFiles are a session's files, opened for a command.
type keptFiles struct {
	entry  session.Entry
	held   *session.Session // nil: it is only looked at
	layers []*state.Layer
	cwd    string
}

// stateCommands are the commands for what a session wrote copy-on-write.
func (c *commandLine) stateCommands() []*cobra.Command {
	return []*cobra.Command{c.review(), c.commit(), c.discard(), c.snapshot(), c.snapshots(), c.restore()}
}

// lookAt opens a session's layers as they are, also while it runs.
func lookAt(name string) (*keptFiles, error) {
	who, err := whoCalls()
	if err != nil {
		return nil, err
	}
	e, err := session.Find(who.stateHome(), name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, noSession(name)
	}
	if err != nil {
		return nil, err
	}
	k := &keptFiles{entry: e, cwd: who.cwd}
	if k.layers, err = state.OpenAll(k.layersDir()); err != nil {
		return nil, err
	}
	if len(k.layers) == 0 && e.Live {
		k.layers, err = state.OpenAll(filepath.Join(e.Path, session.ScratchName))
	}
	return k, err
}

// takeOver opens a session's layers for changing: no run may have them.
func takeOver(name, what string) (*keptFiles, error) {
	who, err := whoCalls()
	if err != nil {
		return nil, err
	}
	if _, err := session.Find(who.stateHome(), name); errors.Is(err, os.ErrNotExist) {
		return nil, noSession(name)
	}
	held, err := session.Take(who.stateHome(), name)
	var busy *session.BusyError
	if errors.As(err, &busy) {
		return nil, &hintedError{
			fmt.Errorf("session %q is in use: %s needs its files at rest, and processes that are merely paused hold them open and change them again", name, what),
			"end it first: hermes-wrap stop " + name,
		}
	}
	if err != nil {
		return nil, err
	}
	k, err := lookAt(name)
	if err != nil {
		_ = held.Close()
		return nil, err
	}
	k.held, k.entry.Live = held, false
	return k, nil
}

func (k *keptFiles) close() {
	state.CloseAll(k.layers)
	if k.held != nil {
		_ = k.held.Close()
	}
}

func (k *keptFiles) layersDir() string { return filepath.Join(k.entry.Path, session.StateName) }

// none is the error for a session without layers.
func (k *keptFiles) none() error {
	if len(k.layers) > 0 {
		return nil
	}
	return &hintedError{
		fmt.Errorf("session %q keeps no files", k.entry.Name),
		"a policy keeps them with \"workspace: {access: cow}\" and \"state: persistent\"",
	}
}

// within gives the paths that lie in a layer's tree, relative to it. Relative ones
// count from the working directory if that lies in the tree, else from the tree.
func (k *keptFiles) within(l *state.Layer, paths []string) (rel []string) {
	for _, p := range paths {
		if !filepath.IsAbs(p) {
			base := l.Target
			if below(k.cwd, l.Target) {
				base = k.cwd
			}
			p = filepath.Join(base, p)
		}
		if p = filepath.Clean(p); below(p, l.Target) {
			r := strings.TrimPrefix(strings.TrimPrefix(p, l.Target), "/")
			rel = append(rel, r)
		}
	}
	return rel
}

func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// picked is a layer with its changes, and those that the paths name.
type picked struct {
	layer   *state.Layer
	all     []state.Change
	paths   []string
	changes []state.Change
}

// pick compares the layers that paths touch; no paths mean all. A path without
// changes is an error.
func (k *keptFiles) pick(paths []string) (out []picked, err error) {
	if err := k.none(); err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, l := range k.layers {
		p := picked{layer: l}
		if p.all, err = l.Diff(); err != nil {
			return nil, err
		}
		p.changes = p.all
		if len(paths) > 0 {
			p.changes = nil
			for _, arg := range paths {
				rel := k.within(l, []string{arg})
				if chosen, err := state.Select(p.all, rel); len(rel) > 0 && err == nil {
					p.paths, p.changes, found[arg] = append(p.paths, rel...), append(p.changes, chosen...), true
				}
			}
			if len(p.paths) == 0 {
				continue
			}
			p.changes, _ = state.Select(p.all, p.paths)
		}
		out = append(out, p)
	}
	for _, arg := range paths {
		if !found[arg] {
			err = errors.Join(err, &hintedError{fmt.Errorf("nothing is changed at or below %q", arg), "hermes-wrap review " + k.entry.Name + " --name-only lists what is"})
		}
	}
	return out, err
}

// unfinished says that a commit was broken off.
func (k *keptFiles) unfinished() error {
	for _, l := range k.layers {
		if l.Unfinished() {
			return &hintedError{fmt.Errorf("a commit of session %q was broken off", k.entry.Name), "finish it: hermes-wrap commit --repair " + k.entry.Name}
		}
	}
	return nil
}

// stateCommand makes a command on one session.
func (c *commandLine) stateCommand(use, short string, args cobra.PositionalArgs, do func(args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		unhurried()
		if err := do(args); err != nil {
			c.code = c.voice.fail(err)
		}
		return nil
	}
	cmd.ValidArgsFunction = completeKept
	return cmd
}

// completeKept completes the names of sessions that keep files.
func completeKept(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	who, err := whoCalls()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := session.List(who.stateHome())
	for _, e := range all {
		if e.State {
			names = append(names, e.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// plural says how many there are of something.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
