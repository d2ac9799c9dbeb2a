package sandbox

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// byLibrary reads the same with the standard library.
func byLibrary(t *testing.T, path string) (loader string, lists []string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		return "", nil
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(p.Open())
			if err != nil {
				t.Fatal(err)
			}
			loader = strings.TrimRight(string(b), "\x00")
		}
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		if found, err := f.DynString(tag); err == nil {
			lists = append(lists, found...)
		}
	}
	return loader, lists
}

func TestELFAsTheLibraryReadsIt(t *testing.T) {
	seen, loaders := 0, 0
	for _, pattern := range []string{"/bin/*", "/usr/lib/*-linux-gnu/*.so*", "/usr/local/bin/*", "/usr/lib/git-core/git"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files[:min(len(files), 300)] {
			loader, lists := readELF(path)
			wantLoader, wantLists := byLibrary(t, path)
			slices.Sort(lists)
			slices.Sort(wantLists)
			if loader != wantLoader || !slices.Equal(lists, wantLists) {
				t.Errorf("%s: got %q %q, want %q %q", path, loader, lists, wantLoader, wantLists)
			}
			seen++
			if loader != "" {
				loaders++
			}
		}
	}
	if seen < 50 || loaders < 10 {
		t.Errorf("got %d files and %d with a loader, want enough to compare", seen, loaders)
	}
}

// FuzzELF: work is bounded for what an agent may write, and of every file that the
// standard library takes for a program the loader is read as that one reads it.
func FuzzELF(f *testing.F) {
	if b, err := os.ReadFile("/bin/true"); err == nil && len(b) > 4096 && b[4] == 2 {
		f.Add(b[:4096])
		// Without sections, of which the end of the file is full, the library reads it.
		short := bytes.Clone(b[:4096])
		clear(short[40:48])
		clear(short[58:64])
		f.Add(short)
	}
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Add(append([]byte("\x7fELF\x01\x02\x01"), bytes.Repeat([]byte{0xff}, 200)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := openELF(bytes.NewReader(b))
		if e == nil {
			return
		}
		if len(e.loader()) > elfMaxName || len(strings.Join(e.searched(), "")) > elfMaxLists*elfMaxName {
			t.Error("got more than is read")
		}
		file, err := elf.NewFile(bytes.NewReader(b))
		if err != nil || len(file.Progs) > elfMaxParts {
			return
		}
		i := slices.IndexFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		if i < 0 {
			if e.loader() != "" {
				t.Errorf("got the loader %q, want none", e.loader())
			}
			return
		}
		want, err := io.ReadAll(io.LimitReader(file.Progs[i].Open(), elfMaxName))
		if err == nil && e.loader() != untilNul(want) {
			t.Errorf("got the loader %q, want %q", e.loader(), untilNul(want))
		}
	})
}
