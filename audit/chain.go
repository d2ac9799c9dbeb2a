package audit

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
)

// epochLines is how many lines a chain makes with one key. The next key is
// derived from it and the old one forgotten, so that whoever takes over a
// writer cannot make earlier lines again.
const epochLines = 64

// chain makes the codes of one writer's lines, in their order.
type chain struct {
	key   [sha256.Size]byte // of the epoch
	epoch uint64
	mac   hash.Hash
	prev  [2 * sha256.Size]byte // the code of the line before, in hex
}

func newChain(key ChainKey) *chain {
	c := &chain{}
	copy(c.key[:], key)
	c.mac = hmac.New(sha256.New, c.key[:])
	for i := range c.prev {
		c.prev[i] = '0'
	}
	return c
}

// advance goes on to the key of a line. There is no way back.
func (c *chain) advance(sequence uint64) {
	if c.epoch == sequence/epochLines {
		return
	}
	for ; c.epoch < sequence/epochLines; c.epoch++ {
		c.key = sha256.Sum256(append([]byte("next"), c.key[:]...))
	}
	c.mac = hmac.New(sha256.New, c.key[:])
}

// code gives the code of a line's text up to the code itself.
func (c *chain) code(sequence uint64, text []byte) (code [2 * sha256.Size]byte) {
	c.advance(sequence)
	c.mac.Reset()
	_, _ = c.mac.Write(text)
	var sum [sha256.Size]byte
	hex.Encode(code[:], c.mac.Sum(sum[:0]))
	return code
}

const (
	beforePrev = `,"prev":"`
	beforeMAC  = `,"mac":"`
	afterMAC   = `"}}`
)

// seal ends a line that appendEvent began, and gives its code.
func (c *chain) seal(b []byte, sequence uint64) ([]byte, [2 * sha256.Size]byte) {
	if b[len(b)-1] == '{' {
		b = append(b, beforePrev[1:]...)
	} else {
		b = append(b, beforePrev...)
	}
	b = append(append(b, c.prev[:]...), '"')
	code := c.code(sequence, b)
	b = append(append(b, beforeMAC...), code[:]...)
	return append(b, afterMAC...), code
}

// splitCode takes a line apart into the text that its code covers and the code.
// ok is false where a line carries none.
func splitCode(line []byte) (text, code []byte, ok bool) {
	rest, ok := bytes.CutSuffix(line, []byte(afterMAC))
	if !ok || len(rest) < 2*sha256.Size+len(beforeMAC) {
		return nil, nil, false
	}
	code = rest[len(rest)-2*sha256.Size:]
	text, ok = bytes.CutSuffix(rest[:len(rest)-2*sha256.Size], []byte(beforeMAC))
	return text, code, ok
}
