// Package corpus holds the attacks on the network that need the built binary,
// and the list of which test covers which case of the corpus.
package corpus

import (
	"os"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestMain is the attacker as well: the test's own program is copied to where
// it can be run inside.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "reach" {
		reach(os.Args[2:])
		return
	}
	os.Exit(wraptest.Main(m))
}
