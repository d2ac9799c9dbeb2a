package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const callRounds = 5

// callKinds are the system calls that "probe calls" times, in its order, and
// how much slower each may be inside.
var callKinds = []struct {
	name  string
	limit float64
}{{"getpid", 1.12}, {"read of 1 byte", 1.12}, {"stat, 8 levels", 1.12}, {"open+close, 8 levels", 1.4}}

func measureCalls(s *shop) ([]row, error) {
	deep := filepath.Join(s.dir, strings.Repeat("d/", 7))
	if err := os.MkdirAll(deep, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(deep, "f")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 4096)), 0o644); err != nil {
		return nil, err
	}
	argv := []string{s.self, "probe", "calls", file}
	bare, in := make([]series, len(callKinds)), make([]series, len(callKinds))
	for range callRounds {
		for _, side := range []struct {
			argv []string
			into []series
		}{{argv, bare}, {s.inside(s.policy, argv...), in}} {
			got, err := s.numbers(side.argv...)
			if err != nil {
				return nil, err
			}
			for i := range callKinds {
				side.into[i] = append(side.into[i], got[i])
			}
		}
	}
	var rows []row
	for i, k := range callKinds {
		ratio := in[i].min() / bare[i].min()
		rows = append(rows, within("system call: "+k.name, fmt.Sprintf("%.2f × bare", k.limit),
			fmt.Sprintf("%.2f × (%.0f against %.0f ns; medians %.0f, %.0f)", ratio, in[i].min(), bare[i].min(), in[i].median(), bare[i].median()), ratio, k.limit))
	}
	return rows, nil
}
