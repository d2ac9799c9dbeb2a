package sandbox

import (
	"encoding/binary"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// filterInstr is one instruction of classic BPF, struct sock_filter.
type filterInstr struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// The operations that seccomp(2) programs here are made of.
const (
	filterLoad   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	filterAnd    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	filterJump   = unix.BPF_JMP | unix.BPF_JA
	filterJumpEq = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	filterJumpGe = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	filterJumpGt = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	filterIfAny  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	filterReturn = unix.BPF_RET | unix.BPF_K
)

// Offsets into struct seccomp_data.
const (
	filterNr   = 0
	filterArch = 4
	filterArgs = 16
)

// filterLow is the offset of the low 32 bits of an argument: all there is of
// an int, because the kernel ignores the upper half (CVE-2019-10063 was a
// comparison of all 64). Both architectures are little-endian.
func filterLow(arg uint32) uint32 { return filterArgs + 8*arg }

// filterHigh is the offset of the upper 32 bits.
func filterHigh(arg uint32) uint32 { return filterLow(arg) + 4 }

// filterAudit gives the AUDIT_ARCH value of an architecture in Go's words.
func filterAudit(arch string) (uint32, error) {
	switch arch {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64, nil
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64, nil
	}
	return 0, fmt.Errorf("compile filter: no system call table for %q", arch)
}

// filterEncode gives the program as the bytes of an array of struct
// sock_filter.
func filterEncode(prog []filterInstr) []byte {
	out := make([]byte, 0, 8*len(prog))
	for _, in := range prog {
		out = binary.LittleEndian.AppendUint16(out, in.code)
		out = append(out, in.jt, in.jf)
		out = binary.LittleEndian.AppendUint32(out, in.k)
	}
	return out
}

// filterDecode is the reverse of filterEncode.
func filterDecode(raw []byte) ([]filterInstr, error) {
	if len(raw) == 0 || len(raw)%8 != 0 || len(raw)/8 > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("decode filter: %d bytes are no program", len(raw))
	}
	prog := make([]filterInstr, 0, len(raw)/8)
	for ; len(raw) > 0; raw = raw[8:] {
		prog = append(prog, filterInstr{
			code: binary.LittleEndian.Uint16(raw), jt: raw[2], jf: raw[3],
			k: binary.LittleEndian.Uint32(raw[4:]),
		})
	}
	return prog, nil
}

// filterCode is a program being written: jumps name labels until link puts
// distances in their place.
type filterCode struct {
	instrs []filterInstr
	jumps  []filterBranch // one for each instruction; zero for none
	labels map[string]int
}

// filterBranch names where an instruction goes; "" is the next instruction.
type filterBranch struct{ yes, no string }

// emit appends an instruction without a jump.
func (c *filterCode) emit(code uint16, k uint32) { c.branch(code, k, "", "") }

// branch appends a jump to labels.
func (c *filterCode) branch(code uint16, k uint32, yes, no string) {
	c.instrs = append(c.instrs, filterInstr{code: code, k: k})
	c.jumps = append(c.jumps, filterBranch{yes, no})
}

// label names the next instruction.
func (c *filterCode) label(name string) {
	if c.labels == nil {
		c.labels = map[string]int{}
	}
	c.labels[name] = len(c.instrs)
}

// link resolves the labels.
func (c *filterCode) link() ([]filterInstr, error) {
	prog := append([]filterInstr{}, c.instrs...)
	for i, j := range c.jumps {
		yes, err := c.distance(i, j.yes)
		if err != nil {
			return nil, err
		}
		no, err := c.distance(i, j.no)
		if err != nil {
			return nil, err
		}
		if prog[i].code == filterJump {
			prog[i].k = uint32(yes)
			continue
		}
		if yes > 255 || no > 255 {
			return nil, fmt.Errorf("BUG: compile filter: jump from %d to %q is too far", i, j.yes+j.no)
		}
		prog[i].jt, prog[i].jf = uint8(yes), uint8(no)
	}
	return prog, nil
}

// distance is how many instructions lie between a jump and a label.
func (c *filterCode) distance(from int, label string) (int, error) {
	if label == "" {
		return 0, nil
	}
	to, ok := c.labels[label]
	if !ok || to <= from {
		return 0, fmt.Errorf("BUG: compile filter: no label %q after instruction %d", label, from)
	}
	return to - from - 1, nil
}

// filterNative is the architecture that CompileFilter compiles for.
const filterNative = runtime.GOARCH
