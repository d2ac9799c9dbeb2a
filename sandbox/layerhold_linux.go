package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// Layer is one copy-on-write layer of a run, seen from the launcher.
type Layer struct {
	Id     string
	Target string // the host's tree
	Method Method
	// Memory tells that it lies in a tmpfs that ends with the last descriptor.
	Memory bool
	// Why says why the layer is not kept in the way that was asked for. "": it is.
	Why string
	// Ready is the moment (nanoseconds since 1970) after which the ctime of
	// whatever is changed in a new copy lies. 0 for others.
	Ready int64
	// Upper is the upper directory of an overlay, or the top of a copy. What is
	// below was written by the agent and is to be read as hostile.
	Upper *os.File
}

// layerHolder keeps the layers that the stage handed over.
type layerHolder struct {
	mu     sync.Mutex
	layers []Layer
	err    error
}

func (h *layerHolder) list() []Layer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.layers)
}

func (h *layerHolder) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

func (h *layerHolder) close() {
	for _, l := range h.list() {
		l.Upper.Close()
	}
}

// Layers gives the copy-on-write layers while the sandbox runs. The descriptors
// are the run's: they stay open until the caller of Run closes them.
func (s *Sandbox) Layers() []Layer { return s.r.layers.list() }

// aboutLayers takes what the stage says about layers, while the launch lasts:
// from an init that has started the agent none of it is believed.
func (r *run) aboutLayers(m message) bool {
	switch m.Op {
	case opWant, opCopying, opLayers:
	default:
		return false
	}
	select {
	case <-r.built:
		closeAll(m.files)
		return true
	default:
	}
	answer := message{Op: opKept}
	var err error
	switch m.Op {
	case opCopying:
		if r.Progress != nil {
			r.Progress(m.Found)
		}
		return true
	case opWant:
		answer.Op = opDirs
		if answer.Dirs, err = r.layerDirs(); err == nil {
			break
		}
	case opLayers:
		err = r.takeLayers(m)
	}
	if err != nil {
		answer.Error = err.Error()
		r.layers.mu.Lock()
		r.layers.err = err
		r.layers.mu.Unlock()
	}
	_ = r.control.send(answer)
	return true
}

func (r *run) layerDirs() ([]LayerDir, error) {
	if r.LayerDirs == nil {
		return nil, errors.New("BUG: the layers cannot be kept in memory here, and there is no directory for them")
	}
	return r.LayerDirs()
}

func (r *run) takeLayers(m message) error {
	planned := r.Plan.CowTrees()
	if len(m.Layers) != len(planned) || len(m.files) != len(planned) || len(r.layers.list()) > 0 {
		closeAll(m.files)
		return fmt.Errorf("BUG: init made %d layers and sent %d, of %d in the plan", len(m.Layers), len(m.files), len(planned))
	}
	var layers []Layer
	for i, n := range m.Layers {
		layers = append(layers, Layer{n.Id, n.Target, n.Method, n.Memory, n.Why, n.Ready, m.files[i]})
	}
	r.layers.mu.Lock()
	r.layers.layers = layers
	r.layers.mu.Unlock()
	if r.Layered == nil {
		return nil
	}
	return r.Layered(layers, m.Pid)
}
