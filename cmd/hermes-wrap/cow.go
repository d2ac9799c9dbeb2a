package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
	"github.com/hermes-wrap/hermes-wrap/session"
	"github.com/hermes-wrap/hermes-wrap/state"
)

// layerStore is where a run keeps the copy-on-write layers that lie on disk. The
// session's lock is held meanwhile, so nobody else mounts them.
type layerStore struct {
	dir  string
	dirs map[string]sandbox.LayerDir
	// given are those that the sandbox gets at its start.
	given []sandbox.LayerDir
	// made are the layers of the run, as layer.json describes them.
	made map[string]state.Meta
	// persistent layers stay; others are removed at the end.
	persistent bool
	began      time.Time
}

// openLayers finds the directories of a plan's layers. For an ephemeral plan
// that is done only when they cannot be kept in memory.
func (l *launch) openLayers() (err error) {
	plan := l.prep.plan
	l.layers = layerStore{dirs: map[string]sandbox.LayerDir{}, made: map[string]state.Meta{}, began: time.Now()}
	if plan.Cow == nil || !plan.Cow.Persistent {
		// Beside what an earlier run of this name has kept.
		l.layers.dir = filepath.Join(l.session.Path, session.ScratchName)
		return l.layers.clear()
	}
	l.layers.dir, l.layers.persistent = filepath.Join(l.session.Path, session.StateName), true
	l.layers.given, err = l.layers.open(plan.CowTrees())
	return err
}

// clear removes what is not to stay, also what a killed run left.
func (s *layerStore) clear() error {
	if s.persistent || s.dir == "" {
		return nil
	}
	return sandbox.LayerDir{Path: s.dir}.Remove()
}

// moreLayers is for a run whose layers cannot be kept in memory.
func (l *launch) moreLayers() ([]sandbox.LayerDir, error) {
	return l.layers.open(l.prep.plan.CowTrees())
}

func (s *layerStore) open(trees []sandbox.Entry) (out []sandbox.LayerDir, err error) {
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make the directory of the session's layers: %w", err)
	}
	for _, tree := range trees {
		d, err := s.openOne(tree)
		if err != nil {
			return nil, err
		}
		s.dirs[tree.Layer] = d
		out = append(out, d)
	}
	return out, nil
}

// openOne finds the directory of one layer, or makes it. A directory without
// layer.json is what a launch left that was killed before its command started.
func (s *layerStore) openOne(tree sandbox.Entry) (sandbox.LayerDir, error) {
	path := filepath.Join(s.dir, tree.Layer)
	layer, err := state.Open(path)
	if err == nil {
		defer func() { _ = layer.Close() }()
		return s.reopen(layer, path, tree)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return sandbox.LayerDir{}, fmt.Errorf("open the layer of %q: %w", tree.Target, err)
	}
	if err := (sandbox.LayerDir{Path: path}).Remove(); err != nil {
		return sandbox.LayerDir{}, fmt.Errorf("remove an unfinished layer: %w", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		return sandbox.LayerDir{}, err
	}
	return sandbox.OpenLayerDir(tree.Layer, path, "")
}

func (s *layerStore) reopen(layer *state.Layer, path string, tree sandbox.Entry) (sandbox.LayerDir, error) {
	if layer.Target != tree.Source {
		return sandbox.LayerDir{}, &sandbox.StepError{
			Step: sandbox.StepPreflight, Err: fmt.Errorf("the layer %q of this session belongs to %q and not to %q", tree.Layer, layer.Target, tree.Source),
			Hint: "give this run another --name",
		}
	}
	if layer.Unfinished() {
		return sandbox.LayerDir{}, &sandbox.StepError{
			Step: sandbox.StepPreflight, Err: fmt.Errorf("a commit of the layer over %q was broken off", tree.Source),
			Hint: "finish it: hermes-wrap commit --repair " + filepath.Base(filepath.Dir(s.dir)),
		}
	}
	if err := layer.Refresh(); err != nil {
		return sandbox.LayerDir{}, fmt.Errorf("open the layer of %q: %w", tree.Target, err)
	}
	s.made[tree.Layer] = layer.Meta
	return sandbox.OpenLayerDir(tree.Layer, path, sandbox.Method(layer.Method))
}

// layered notes down how the layers are kept and who has them mounted, before
// anything can be written to them.
func (l *launch) layered(layers []sandbox.Layer, init int) error {
	for _, layer := range layers {
		if layer.Why != "" {
			l.sayLayer(layer)
		}
		if err := l.layers.note(layer); err != nil {
			return err
		}
	}
	return l.session.Hold(init)
}

// note writes layer.json of a new layer.
func (s *layerStore) note(layer sandbox.Layer) error {
	if _, ok := s.made[layer.Id]; ok {
		return nil
	}
	storage := "directory"
	if layer.Memory {
		storage = "tmpfs"
	}
	meta, err := state.NewMeta(layer.Target, string(layer.Method), storage)
	if err != nil {
		return err
	}
	meta.Created = s.began
	if layer.Ready > 0 {
		meta.Ready = time.Unix(0, layer.Ready)
	}
	s.made[layer.Id] = meta
	path := s.dirs[layer.Id].Path
	if layer.Memory {
		// For those who look at it while the run lasts.
		path = filepath.Join(s.dir, layer.Id)
		meta.Pid, meta.Fd = os.Getpid(), int(layer.Upper.Fd())
		if err := os.MkdirAll(path, 0o700); err != nil {
			return err
		}
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return meta.Write(dir)
}

// progress shows how far a long copy is.
func (l *launch) progress(text string) {
	if !l.flags.quiet {
		l.voice.note(text)
	}
}

// sayLayer says that a layer is kept in another way than was asked for. Nothing
// is weaker then, but it is slower and takes space.
func (l *launch) sayLayer(layer sandbox.Layer) {
	how := "is kept on disk and not in memory, so limits.disk is watched and not held by the kernel"
	if layer.Method == sandbox.MethodCopy {
		how = "is a full copy, which takes time at the start and space on disk"
	}
	text := fmt.Sprintf("the copy-on-write layer of %q %s (%s)", layer.Target, how, layer.Why)
	l.voice.warn(text)
	_ = l.write(audit.Event{Kind: audit.KindLaunch, Reason: text})
}

// closeLayers lets the layers go. What is ephemeral is gone then.
func (l *launch) closeLayers(layers []sandbox.Layer) {
	for _, layer := range layers {
		layer.Upper.Close()
	}
	if err := l.layers.clear(); err != nil {
		l.voice.warn(fmt.Sprintf("remove the layers of this run: %v", err))
	}
}

// keepsLayers tells whether a policy has layers that outlive the run.
func keepsLayers(p policy.Policy) bool {
	return p.State == "persistent" && (p.Workspace.Access == policy.AccessCow || len(p.Filesystem.Cow) > 0)
}
