package npm

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRequire(t *testing.T) {
	dir := Require(t, "peers")
	if again := Require(t, "peers"); again != dir {
		t.Errorf("got %q, want %q as before", again, dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "ws", "package.json")); err != nil {
		t.Error(err)
	}
}
