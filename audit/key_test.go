package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestMakeKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "audit.key")
	keys := make([]Key, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = MakeKey(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, k := range keys {
		if k != keys[0] || k == (Key{}) {
			t.Errorf("key %d: got another one or none, want the same for all", i)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: got %v (%v), want 0600", info.Mode(), err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("directory: got %v (%v), want the key alone", left, err)
	}
	again, err := ReadKey(path)
	if err != nil || again != keys[0] {
		t.Errorf("read again: got another key (%v), want the same", err)
	}
	if other, err := MakeKey(filepath.Join(t.TempDir(), "k")); err != nil || other == keys[0] {
		t.Errorf("another place: got the same key (%v), want another", err)
	}
}

func TestReadKeyRefuses(t *testing.T) {
	good := filepath.Join(t.TempDir(), "key")
	if _, err := MakeKey(good); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(path string) error{
		"missing":          func(string) error { return nil },
		"symbolic link":    func(p string) error { return os.Symlink(good, p) },
		"readable for all": func(p string) error { return os.WriteFile(p, text, 0o644) },
		"empty":            func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"short":            func(p string) error { return os.WriteFile(p, text[:20], 0o600) },
		"long":             func(p string) error { return os.WriteFile(p, append(text[:64:64], text...), 0o600) },
		"no hex":           func(p string) error { return os.WriteFile(p, make([]byte, 64), 0o600) },
		"directory":        func(p string) error { return os.Mkdir(p, 0o700) },
	}
	for name, make := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadKey(path); err == nil {
				t.Error("got no error, want one")
			}
		})
	}
}

func TestKeysStayOutOfMessages(t *testing.T) {
	k := testKey.ForWriter("run", "proxy")
	for _, verb := range []string{"%v", "%s"} {
		if got := fmt.Sprintf(verb, k); got != hidden {
			t.Errorf("%s: got %q, want it hidden", verb, got)
		}
	}
}
