package main

import (
	"fmt"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// layered notes down how the layers of copy-on-write trees are kept, before
// anything can be written to them.
func (l *launch) layered(layers []sandbox.Layer, _ int) error {
	for _, layer := range layers {
		if layer.Why != "" {
			l.sayLayer(layer)
		}
	}
	return nil
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

func closeLayers(layers []sandbox.Layer) {
	for _, layer := range layers {
		layer.Upper.Close()
	}
}
