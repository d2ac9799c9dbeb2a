package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The committed files are what the types give.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	dir := filepath.Join("..", "..")
	files, err := generate(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got an old file, want the output of: go generate ./policy", name)
		}
	}
}
