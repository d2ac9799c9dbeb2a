package faults

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

func TestExplore(t *testing.T) {
	seed, _ := strconv.ParseInt(os.Getenv("SEED"), 10, 64)
	p, err := Run(t.Context(), report.Options{Bin: os.Getenv("HERMES_WRAP_BIN"), User: os.Getenv("HERMES_TEST_USER"), Seed: seed, Short: os.Getenv("FULL") == "", Say: func(f string, a ...any) { fmt.Printf(f+"\n", a...) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range p.Tables {
		fmt.Println(table.Title)
		for _, r := range table.Rows {
			fmt.Println("  ", r)
		}
	}
	for _, f := range p.Failed {
		fmt.Println("FAILED", f)
	}
	fmt.Println(p.Missing, p.Took)
}

func TestLayers(t *testing.T) {
	p := report.Part{}
	s, err := newWorkshop(t.Context(), report.Options{Bin: os.Getenv("HERMES_WRAP_BIN"), User: os.Getenv("HERMES_TEST_USER"), Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	tr := &trial{workshop: s, budget: fullBudget, part: &p}
	if err := tr.layers(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, table := range p.Tables {
		for _, r := range table.Rows {
			fmt.Println("  ", r)
		}
	}
	for _, f := range p.Failed {
		fmt.Println("FAILED", f)
	}
}
