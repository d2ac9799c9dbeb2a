package hermeswrap_test

import (
	"debug/elf"
	"os"
	"testing"
)

// maxBinary bounds the release binary: each launch by an ordinary user copies
// all of it into sealed memory.
const maxBinary = 19 << 20

// requireBinary gives the release binary, which "make test" builds.
func requireBinary(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("HERMES_WRAP_BIN")
	if bin != "" {
		return bin
	}
	if os.Getenv("HERMES_MUST_WORK") == "1" {
		t.Fatal("missing: HERMES_WRAP_BIN, the binary to test")
	}
	t.Skip("missing: HERMES_WRAP_BIN, the binary to test")
	return ""
}

func TestBinaryIsSmall(t *testing.T) {
	info, err := os.Stat(requireBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() >= maxBinary {
		t.Errorf("size: got %d bytes, want under %d", info.Size(), maxBinary)
	}
}

func TestBinaryIsStatic(t *testing.T) {
	f, err := elf.Open(requireBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	needs, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("loader: got one, want none")
		}
	}
	if len(needs) > 0 {
		t.Errorf("libraries: got %v, want none", needs)
	}
}
