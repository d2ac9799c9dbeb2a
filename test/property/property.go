// Package property runs properties that compare only some of what is drawn.
package property

import (
	"testing"

	"pgregory.net/rapid"
)

// least is how many comparisons are worth the name of a test.
const least = 20

// Compare checks a property until it has compared enough, for a run in which
// luck drew nothing to compare has shown nothing. The property gives how often
// it compared; one that never does fails.
func Compare(t *testing.T, property func(*rapid.T) int) {
	t.Helper()
	compared := 0
	for range 100 {
		rapid.Check(t, func(t *rapid.T) { compared += property(t) })
		if compared >= least || t.Failed() {
			return
		}
	}
	t.Errorf("compared %d times, want %d: the property hardly ever compares", compared, least)
}
