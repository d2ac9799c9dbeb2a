package state

import (
	"crypto/sha256"
	"io"

	"golang.org/x/sys/unix"
)

// Bounds of the search for renames: it is for people, and must stay cheap.
const (
	renameFiles = 2000
	renameBytes = 32 << 20
)

// findRenames pairs added files with deleted ones of the same content.
func (d *differ) findRenames() {
	gone := map[int64][]int{}
	for i, c := range d.changes {
		if c.Kind == Deleted && c.Old.Type == File && c.Old.Size > 0 {
			gone[c.Old.Size] = append(gone[c.Old.Size], i)
		}
	}
	files, left := renameFiles, int64(renameBytes)
	for i := range d.changes {
		c := &d.changes[i]
		if c.Kind != Added || c.New.Type != File || c.Held != "" || len(gone[c.New.Size]) == 0 {
			continue
		}
		if files, left = files-1, left-2*c.New.Size; files < 0 || left < 0 {
			return
		}
		ours, ok := hashBelow(int(d.layer.data.Fd()), c.Path)
		if !ok {
			continue
		}
		for n, k := range gone[c.New.Size] {
			if theirs, ok := hashBelow(int(d.layer.host.Fd()), d.changes[k].Path); ok && theirs == ours {
				c.From = d.changes[k].Path
				gone[c.New.Size] = append(gone[c.New.Size][:n:n], gone[c.New.Size][n+1:]...)
				break
			}
		}
	}
}

func hashBelow(root int, rel string) (sum [sha256.Size]byte, ok bool) {
	f, err := openFile(root, rel, unix.O_RDONLY)
	if err != nil {
		return sum, false
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, false
	}
	return [sha256.Size]byte(h.Sum(nil)), true
}
