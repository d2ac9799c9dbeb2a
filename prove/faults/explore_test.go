package faults

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

func TestExplore(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("N"))
	seed, _ := strconv.ParseInt(os.Getenv("SEED"), 10, 64)
	ctx := context.Background()
	s, err := newWorkshop(ctx, report.Options{Bin: os.Getenv("HERMES_WRAP_BIN"), User: os.Getenv("HERMES_TEST_USER"), Seed: seed, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	w, err := s.newWorld("base", strictPolicy)
	if err != nil {
		t.Fatal(err)
	}
	calls, _, err := w.baseline(ctx)
	if err != nil {
		t.Fatal(err)
	}
	list := injections(calls, seed)
	t.Log(len(calls), "calls", len(list), "injections")
	if n > 0 {
		list = list[:min(n, len(list))]
	}
	began := time.Now()
	results, missed, err := s.sweep(ctx, list, 2)
	if err != nil {
		t.Fatal(err)
	}
	ok := 0
	for _, r := range results {
		if r.wrong == "" {
			ok++
			continue
		}
		fmt.Printf("WRONG %s after=%s: %s\n", r.fault, r.after, r.wrong)
		if os.Getenv("V") != "" {
			fmt.Println(r.err)
		}
	}
	t.Log(len(results), "injected", ok, "fine", missed, "not reached", time.Since(began))
}
