package escape

import (
	"fmt"
	"slices"
	"testing"
)

// On a slow machine root runs every case of the reference but for groups D and F, and
// over the nights each of the others too.
func TestThinned(t *testing.T) {
	variants := []variant{{Value: "a"}, {Value: "b"}, {Value: "c"}, {Value: "d"}, {Value: "e"}, {Value: "r", Random: true}}
	const nights = 60
	seen := map[string]int{}
	for night := range int64(nights) {
		s := Settings{Seed: night, Thin: true}
		for _, id := range []string{"A1", "D1", "F1"} {
			j := s.thinned(job{Case: Case{ID: id}, Configurations: []string{"strict", weak, "ci"}, Variants: variants})
			for _, name := range j.Configurations {
				seen[id+" "+name]++
			}
			values := map[string]bool{}
			for _, v := range j.Variants {
				values[v.Value] = true
				seen[id+" variant "+v.Value]++
			}
			if len(values) != 4 || !values["r"] {
				t.Errorf("got the variants %v, want three and the random one", j.Variants)
			}
		}
	}
	if n := seen["A1 strict"]; n != nights {
		t.Errorf("A1 strict: got %d of %d nights, want each", n, nights)
	}
	for _, name := range []string{"A1 " + weak, "A1 ci", "D1 strict", "F1 strict", "F1 " + weak} {
		if n := seen[name]; n < nights/5 || n > nights/2 {
			t.Errorf("%s: got %d of %d nights, want about a third", name, n, nights)
		}
	}
	for _, v := range variants[:5] {
		if n := seen["A1 variant "+v.Value]; n < nights/3 || n == nights {
			t.Errorf("variant %s: got %d of %d nights, want some", v.Value, n, nights)
		}
	}
	if s := (Settings{Seed: 1}); !slices.Equal(s.thinned(job{Case: Case{ID: "F9"}, Configurations: []string{"strict"}}).Configurations,
		s.thinned(job{Case: Case{ID: "F9"}, Configurations: []string{"strict"}}).Configurations) {
		t.Error("got two answers for one seed")
	}
	for i := range 20 {
		j := Settings{Seed: int64(i)}.thinned(job{Case: Case{ID: fmt.Sprint("F", i)}, Configurations: []string{"strict", weak}})
		if n := len(j.Configurations); n != 0 && n != 2 {
			t.Errorf("F%d: got %v, want the whole case or nothing of it", i, j.Configurations)
		}
	}
}
