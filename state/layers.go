package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// OpenAll opens the layers in a directory, sorted by name.
func OpenAll(dir string) (layers []*Layer, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name()[0] == '.' {
			continue
		}
		l, err := Open(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // one that is not made yet, or was discarded
		}
		if err != nil {
			CloseAll(layers)
			return nil, fmt.Errorf("layer %q: %w", e.Name(), err)
		}
		layers = append(layers, l)
	}
	return layers, nil
}

// CloseAll closes layers.
func CloseAll(layers []*Layer) {
	for _, l := range layers {
		_ = l.Close()
	}
}
