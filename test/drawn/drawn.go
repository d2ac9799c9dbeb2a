// Package drawn lets the fuzzer drive tests that draw what they need from a
// stream of bytes.
package drawn

import (
	"crypto/sha256"
	"math/rand/v2"
)

// room is more than any of our properties draws (bytes).
const room = 32 << 10

// Long gives a stream that begins with the input and does not end early: the
// rest is drawn from the input. Without it most inputs that the fuzzer shortens
// would test nothing.
func Long(input []byte) []byte {
	out := make([]byte, max(len(input), room))
	n := copy(out, input)
	_, _ = rand.NewChaCha8(sha256.Sum256(input)).Read(out[n:])
	return out
}

// Seeds gives inputs to begin with, always the same ones.
func Seeds(n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = make([]byte, 256)
		_, _ = rand.NewChaCha8(sha256.Sum256([]byte{byte(i)})).Read(all[i])
	}
	return all
}
