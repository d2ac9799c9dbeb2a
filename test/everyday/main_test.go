package everyday

import (
	"os"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

// patience bounds each command of the reports' tests.
const patience = 5 * time.Minute

// sized gives the usual size of something in MiB, or with HERMES_EVERYDAY=full
// the size that the report was about.
func sized(usual, full int) int {
	if os.Getenv("HERMES_EVERYDAY") == "full" {
		return full
	}
	return usual
}
