package kernels

import (
	"bytes"
	"fmt"
)

// archive is a cpio archive in the "newc" form, which the kernel unpacks as its
// first root.
type archive struct {
	b bytes.Buffer
	n int
}

func (a *archive) dir(name string) { a.entry(name, 0o040755, nil) }

func (a *archive) file(name string, mode uint32, content []byte) {
	a.entry(name, 0o100000|mode, content)
}

func (a *archive) link(name, to string) { a.entry(name, 0o120777, []byte(to)) }

func (a *archive) entry(name string, mode uint32, content []byte) {
	a.n++
	links := 1
	fmt.Fprintf(&a.b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.n, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	a.b.WriteString(name)
	a.b.WriteByte(0)
	a.pad()
	a.b.Write(content)
	a.pad()
}

func (a *archive) pad() {
	for a.b.Len()%4 != 0 {
		a.b.WriteByte(0)
	}
}

// bytes ends the archive.
func (a *archive) bytes() []byte {
	a.entry("TRAILER!!!", 0, nil)
	return a.b.Bytes()
}
