package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
	"github.com/hermes-wrap/hermes-wrap/session"
	"github.com/hermes-wrap/hermes-wrap/state"
)

// Values of --commit-on-success.
const (
	commitStrict     = "strict"
	commitExceptExec = "except-exec"
	commitAcceptExec = "accept-exec"
)

// mayCommit refuses --commit-on-success where nothing could be committed, before
// the command runs.
func (l *launch) mayCommit() error {
	how := l.flags.commitOnSuccess
	switch how {
	case "":
		return nil
	case commitStrict, commitExceptExec, commitAcceptExec:
	default:
		return &hintedError{fmt.Errorf("--commit-on-success=%s is unknown", how), "it takes strict, except-exec or accept-exec"}
	}
	cow := l.prep.plan.Cow
	if cow == nil {
		return &hintedError{errors.New("--commit-on-success: the policy has no copy-on-write tree"), "workspace: {access: cow} makes the workspace one"}
	}
	if cow.Persistent {
		return nil
	}
	kept, err := state.OpenAll(filepath.Join(l.session.Path, session.StateName))
	defer state.CloseAll(kept)
	if err == nil && len(kept) > 0 {
		err = &hintedError{
			fmt.Errorf("--commit-on-success: session %q keeps files of an earlier run", l.session.Name),
			"look at them: hermes-wrap review " + l.session.Name + ", or give this run another --name",
		}
	}
	return err
}

// handOff is what is said and done about files at the end of a run. Whoever uses
// the host next would execute some of them without asking.
func (l *launch) handOff(res sandbox.Result, code int) (int, error) {
	if l.flags.commitOnSuccess != "" && code == exitOK && res.Stopped == nil {
		return code, l.commitNow(res.Layers)
	}
	if !l.flags.quiet {
		l.sayWritten()
		l.sayLayers(res.Layers)
	}
	return code, nil
}

// sayWritten names files in trees that were written directly.
func (l *launch) sayWritten() {
	p := l.prep.policy
	trees := append([]policy.Path{}, p.Filesystem.Write...)
	if p.Workspace.Access == policy.AccessWrite {
		trees = append(trees, p.Workspace.Path)
	}
	for _, tree := range trees {
		real, err := filepath.EvalSymlinks(tree.Abs)
		if fi, errStat := os.Stat(real); err != nil || errStat != nil || !fi.IsDir() {
			continue
		}
		found, whole, err := state.Written(real, l.began)
		if err != nil {
			l.voice.warn(fmt.Sprintf("look for files that the host executes in %q: %v", real, err))
			continue
		}
		l.sayRuns("was written in "+real, found)
		if !whole {
			l.voice.warn(fmt.Sprintf("%q is large: not all of it was looked at for files that the host executes", real))
		}
	}
}

// handOffLines bounds what is said of one tree.
const handOffLines = 20

func (l *launch) sayRuns(what string, found []state.Change) {
	if len(found) == 0 {
		return
	}
	l.voice.warn(fmt.Sprintf("what the host may execute later %s; look at it first:", what))
	groups, counts := state.Grouped(found)
	for i, c := range groups {
		if i == handOffLines {
			l.voice.warn(fmt.Sprintf("  … and %d more", len(groups)-i))
			return
		}
		text := "  " + audit.Escape(c.Path) + ": " + c.Runs
		if strings.HasSuffix(c.Path, "/") {
			text += fmt.Sprintf(" (%d)", counts[i])
		}
		l.voice.warn(text)
	}
}

// sayLayers says what layers hold, and what becomes of it.
func (l *launch) sayLayers(layers []sandbox.Layer) {
	waiting := 0
	for _, layer := range layers {
		changes, err := l.changesOf(layer)
		if err != nil {
			l.voice.warn(err.Error())
			continue
		}
		if len(changes) == 0 {
			continue
		}
		if !l.layers.persistent {
			l.voice.note(fmt.Sprintf("%s in %q dropped with the run", plural(len(changes), "change"), layer.Target))
			continue
		}
		waiting += len(changes)
		var runs []state.Change
		for _, c := range changes {
			if c.Runs != "" {
				runs = append(runs, c)
			}
		}
		l.sayRuns("waits to be committed to "+layer.Target, runs)
	}
	if waiting > 0 {
		l.voice.note(fmt.Sprintf("%s to be committed: hermes-wrap review %s", plural(waiting, "change"), l.session.Name))
	}
}

func (l *launch) changesOf(layer sandbox.Layer) ([]state.Change, error) {
	opened, err := l.openLayer(layer)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }()
	return opened.Diff()
}

// openLayer opens a layer of the run by its descriptor.
func (l *launch) openLayer(layer sandbox.Layer) (*state.Layer, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", layer.Upper.Fd()), os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the layer of %q: %w", layer.Target, err)
	}
	opened, err := state.FromFiles(layer.Id, l.layers.made[layer.Id], f)
	if err != nil {
		f.Close()
	}
	return opened, err
}

// commitNow commits the layers of a run whose command succeeded. What lies in
// memory is saved to the session's directory first, so that a kill loses nothing;
// what is not committed stays there, to be reviewed.
func (l *launch) commitNow(layers []sandbox.Layer) error {
	dir := filepath.Join(l.session.Path, session.StateName)
	if !l.layers.persistent {
		if err := l.saveLayers(layers, dir); err != nil {
			return err
		}
	}
	k := &keptFiles{entry: session.Entry{Record: session.Record{Name: l.session.Name}, Path: l.session.Path}, cwd: l.who.cwd}
	var err error
	if k.layers, err = state.OpenAll(dir); err != nil {
		return err
	}
	defer k.close()
	c := commandLine{voice: l.voice}
	how := l.flags.commitOnSuccess
	err = c.commitAll(k, nil, committing{CommitOptions: state.CommitOptions{AcceptExec: how == commitAcceptExec, ExceptExec: how == commitExceptExec}})
	if err != nil {
		return fmt.Errorf("the command succeeded, its changes are kept in session %q: %w", l.session.Name, err)
	}
	if l.layers.persistent {
		return nil
	}
	return l.dropCommitted(k.layers, dir)
}

func (l *launch) saveLayers(layers []sandbox.Layer, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the directory of the session's layers: %w", err)
	}
	for _, layer := range layers {
		opened, err := l.openLayer(layer)
		if err != nil {
			return err
		}
		if err := errors.Join(opened.Save(dir), opened.Close()); err != nil {
			return err
		}
	}
	return nil
}

// dropCommitted removes layers that hold nothing any more, and says what is left
// in others.
func (l *launch) dropCommitted(layers []*state.Layer, dir string) error {
	left := 0
	for _, layer := range layers {
		rest, err := layer.Diff()
		if err != nil {
			return err
		}
		if left += len(rest); len(rest) > 0 {
			continue
		}
		if err := (sandbox.LayerDir{Path: filepath.Join(dir, layer.Name)}).Remove(); err != nil {
			return fmt.Errorf("remove a committed layer: %w", err)
		}
	}
	if left > 0 {
		l.voice.note(fmt.Sprintf("%s not committed: hermes-wrap review %s", plural(left, "change"), l.session.Name))
		return nil
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the directory of the session's layers: %w", err)
	}
	return nil
}
