package faults

import (
	"os"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
	"github.com/hermes-wrap/hermes-wrap/test/harness"
)

// TestRun is the short proof.
func TestRun(t *testing.T) {
	bin := os.Getenv("HERMES_WRAP_BIN")
	harness.Require(t, bin != "", "HERMES_WRAP_BIN, the binary to test")
	if testing.Short() {
		t.Skip("it takes more than a minute")
	}
	p, err := Run(t.Context(), report.Options{Bin: bin, User: os.Getenv("HERMES_TEST_USER"), Seed: 1, Short: os.Getenv("HERMES_PROVE_FULL") == "", Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range p.Tables {
		for _, row := range table.Rows {
			t.Log(row)
		}
	}
	for _, f := range p.Failed {
		t.Error(f)
	}
	t.Log(p.Missing, p.Took)
}
