package state

import (
	"crypto/sha256"
	"io"

	"golang.org/x/sys/unix"
)

// Bounds of the search for renames: it is for people, and must stay cheap.
const (
	renameFiles = 4000
	renameBytes = 64 << 20
)

// findRenames pairs added files with deleted ones of the same content. Each file
// is read once.
func (d *differ) findRenames() {
	sizes := map[int64]int{} // what was added and what is gone, 1 and 2
	for _, c := range d.changes {
		switch {
		case c.Kind == Added && c.New.Type == File && c.Held == "":
			sizes[c.New.Size] |= 1
		case c.Kind == Deleted && c.Old.Type == File:
			sizes[c.Old.Size] |= 2
		}
	}
	delete(sizes, 0)
	budget := renameBudget{renameFiles, renameBytes}
	gone := map[[sha256.Size]byte][]string{}
	for _, c := range d.changes {
		if c.Kind == Deleted && c.Old.Type == File && sizes[c.Old.Size] == 3 && budget.take(c.Old.Size) {
			if sum, ok := hashBelow(int(d.layer.host.Fd()), c.Path); ok {
				gone[sum] = append(gone[sum], c.Path)
			}
		}
	}
	for i := range d.changes {
		c := &d.changes[i]
		if c.Kind != Added || c.New.Type != File || c.Held != "" || sizes[c.New.Size] != 3 || !budget.take(c.New.Size) {
			continue
		}
		if sum, ok := hashBelow(int(d.layer.data.Fd()), c.Path); ok && len(gone[sum]) > 0 {
			c.From, gone[sum] = gone[sum][0], gone[sum][1:]
		}
	}
}

// renameBudget is what may still be read.
type renameBudget struct {
	files int
	bytes int64
}

func (b *renameBudget) take(size int64) bool {
	b.files, b.bytes = b.files-1, b.bytes-size
	return b.files >= 0 && b.bytes >= 0
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
