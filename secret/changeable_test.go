package secret

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// What the agent puts on the way to a secret after the launch is neither run nor
// read outside.
func TestPlantedOnTheWay(t *testing.T) {
	dir := t.TempDir()
	inside, outside := filepath.Join(dir, "inside"), filepath.Join(dir, "outside")
	script := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script(filepath.Join(outside, "get"), value)
	script(filepath.Join(outside, "inner"), value)
	if err := os.WriteFile(filepath.Join(outside, "nested"), []byte("#!/bin/sh\nexec inner\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := Reader{
		Environ:    []string{"PATH=" + inside + ":" + outside + ":/usr/bin:/bin"},
		Changeable: func(path string) bool { return path == inside || strings.HasPrefix(path, inside+"/") },
	}
	read := func(argv ...string) (string, error) {
		return r.Read(context.Background(), policy.CredentialSource{Command: argv})
	}
	if got, err := read("get"); err != nil || got != value {
		t.Fatalf("control: got %v, want the secret", err)
	}
	for _, name := range []string{"get", "inner", "only-inside"} {
		script(filepath.Join(inside, name), "planted-planted")
	}
	for _, name := range []string{"get", "nested"} {
		if got, err := read(name); err != nil || got != value {
			t.Errorf("%s: got %v, want the secret from outside and not what was planted", name, err)
		}
	}
	planted := filepath.Join(inside, "get")
	for name, argv := range map[string][]string{
		"found inside alone": {"only-inside"}, "program": {planted}, "argument": {"sh", planted},
		"argument below the root": {"sh", strings.TrimPrefix(planted, "/")}, "value of an option": {"env", "A=" + planted, "get"},
	} {
		if got, err := read(argv...); err == nil || !strings.Contains(err.Error(), "from inside") {
			t.Errorf("%s: got %q and %v, want a refusal", name, got, err)
		}
	}
	file := policy.CredentialSource{File: policy.Path{Abs: planted}}
	if _, err := r.Read(context.Background(), file); err == nil || !strings.Contains(err.Error(), "from inside") {
		t.Errorf("file: got %v, want a refusal", err)
	}
}
