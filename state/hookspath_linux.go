package state

import (
	"io"

	"golang.org/x/sys/unix"
)

// hooksPath reads core.hooksPath from the repository's configuration in the
// tree, where the layer's own may be another: that one is reported as changed.
func hooksPath(host int) string {
	f, err := openFile(host, ".git/config", unix.O_RDONLY)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return ""
	}
	return parseHooksPath(string(b))
}
