// Package peers runs clients and servers of others against each other, with
// the sandbox between them. Each also runs bare, where everything must work.
package peers

import (
	"os"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }
