package sandbox

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
)

// elfFile is as much of a program's file as its loader looks at: where it names
// another loader and directories with libraries. The agent may have written the
// file, so nothing in it is believed: what leads nowhere is as good as absent.
type elfFile struct {
	r     io.ReaderAt
	order binary.ByteOrder
	wide  bool // 64-bit
	parts []elfPart
}

// elfPart is one program header.
type elfPart struct {
	kind              uint32
	off, addr, length uint64
}

// The numbers of elf(5) that are used, and how much is read at most.
const (
	elfLoad, elfDynamic, elfInterp                      = 1, 2, 3
	elfStrings, elfStringsSize, elfRpath, elfRunpath    = 5, 10, 15, 29
	elfMaxParts, elfMaxName, elfMaxDynamic, elfMaxLists = 128, 4096, 64 << 10, 16
)

// openELF reads the program headers; nil when there are none.
func openELF(f io.ReaderAt) *elfFile {
	head := make([]byte, 64)
	n, _ := f.ReadAt(head, 0)
	if n < 52 || string(head[:4]) != "\x7fELF" {
		return nil
	}
	e := &elfFile{r: f, wide: head[4] == 2, order: binary.LittleEndian}
	if head[5] == 2 {
		e.order = binary.BigEndian
	}
	at, size, count := uint64(e.order.Uint32(head[28:])), e.order.Uint16(head[42:]), e.order.Uint16(head[44:])
	if e.wide {
		at, size, count = e.order.Uint64(head[32:]), e.order.Uint16(head[54:]), e.order.Uint16(head[56:])
	}
	if least := map[bool]uint16{false: 32, true: 56}[e.wide]; size < least || count > elfMaxParts {
		return nil
	}
	all := e.read(at, uint64(size)*uint64(count), elfMaxParts<<10)
	for i := 0; i+int(size) <= len(all); i += int(size) {
		e.parts = append(e.parts, e.part(all[i:]))
	}
	return e
}

func (e *elfFile) part(b []byte) elfPart {
	if e.wide {
		return elfPart{e.order.Uint32(b), e.order.Uint64(b[8:]), e.order.Uint64(b[16:]), e.order.Uint64(b[32:])}
	}
	return elfPart{e.order.Uint32(b), uint64(e.order.Uint32(b[4:])), uint64(e.order.Uint32(b[8:])), uint64(e.order.Uint32(b[16:]))}
}

// read gives up to length bytes from an offset, and no more than most.
func (e *elfFile) read(off, length, most uint64) []byte {
	if off > 1<<62 {
		return nil
	}
	b := make([]byte, min(length, most))
	n, _ := e.r.ReadAt(b, int64(off))
	return b[:n]
}

// loader is the program that loads this one; "" when there is none.
func (e *elfFile) loader() string {
	for _, p := range e.parts {
		if p.kind == elfInterp {
			return untilNul(e.read(p.off, p.length, elfMaxName))
		}
	}
	return ""
}

// searched gives the lists of directories in which libraries are looked for.
func (e *elfFile) searched() (lists []string) {
	var names []uint64
	var table, size uint64
	for tag, value := range e.dynamic() {
		switch tag {
		case elfStrings:
			table = value
		case elfStringsSize:
			size = value
		case elfRpath, elfRunpath:
			names = append(names, value)
		}
	}
	for _, n := range names[:min(len(names), elfMaxLists)] {
		if n < size {
			lists = append(lists, untilNul(e.read(e.offset(table)+n, size-n, elfMaxName)))
		}
	}
	return lists
}

// dynamic gives the entries of the dynamic section, up to its end.
func (e *elfFile) dynamic() func(func(tag, value uint64) bool) {
	word := map[bool]int{false: 4, true: 8}[e.wide]
	number := func(b []byte) uint64 {
		if e.wide {
			return e.order.Uint64(b)
		}
		return uint64(e.order.Uint32(b))
	}
	return func(yield func(tag, value uint64) bool) {
		for _, p := range e.parts {
			if p.kind != elfDynamic {
				continue
			}
			b := e.read(p.off, p.length, elfMaxDynamic)
			for ; len(b) >= 2*word; b = b[2*word:] {
				if tag := number(b); tag == 0 || !yield(tag, number(b[word:])) {
					break
				}
			}
		}
	}
}

// offset gives where in the file an address is loaded from.
func (e *elfFile) offset(addr uint64) uint64 {
	for _, p := range e.parts {
		if p.kind == elfLoad && addr >= p.addr && addr-p.addr < p.length {
			return p.off + addr - p.addr
		}
	}
	return 1 << 63 // nowhere
}

func untilNul(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

// readELF reads a file's loader and lists of directories.
func readELF(path string) (loader string, lists []string) {
	f, err := os.Open(path)
	if err != nil {
		return "", nil
	}
	defer f.Close()
	e := openELF(f)
	if e == nil {
		return "", nil
	}
	return e.loader(), e.searched()
}
