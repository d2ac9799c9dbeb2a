package netpolicy

import (
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/drawn"
	"pgregory.net/rapid"
)

// fuzzDrawn lets the fuzzer choose what a property draws.
func fuzzDrawn(f *testing.F, prop func(*rapid.T)) {
	for _, seed := range drawn.Seeds(16) {
		f.Add(seed)
	}
	target := rapid.MakeFuzz(prop)
	f.Fuzz(func(t *testing.T, in []byte) { target(t, drawn.Long(in)) })
}

// FuzzReference: the engine decides requests and connections as the plain
// reading of the policy does, whatever policy and request are drawn.
func FuzzReference(f *testing.F) {
	fuzzDrawn(f, func(t *rapid.T) {
		requestsAgree(t)
		connectionsAgree(t)
	})
}

// FuzzReferenceMessages: the same for what is spoken inside HTTP.
func FuzzReferenceMessages(f *testing.F) {
	fuzzDrawn(f, func(t *rapid.T) { messagesAgree(t) })
}

// FuzzTighter: a denial more, an allowance less, or another order of the rules
// never allows anything.
func FuzzTighter(f *testing.F) {
	fuzzDrawn(f, func(t *rapid.T) {
		tighterDenies(t)
		orderDoesNotMatter(t)
	})
}
