package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// benchDecide runs the benchmark of a decision in the source tree.
func benchDecide() []byte {
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^BenchmarkDecide$", "-benchmem", "-benchtime", "200ms", "./netpolicy")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Appendf(out, "\n%v", err)
	}
	return out
}

var decideLine = regexp.MustCompile(`(?m)^BenchmarkDecide/(\d+)rules/\S+\s+\d+\s+([0-9.]+) ns/op\s+\d+ B/op\s+(\d+) allocs/op`)

func measureDecide(*shop) ([]row, error) {
	text, err := os.ReadFile(os.Getenv(envDecide))
	if err != nil {
		text = benchDecide()
	}
	worst := map[int]float64{}
	allocs := 0
	for _, m := range decideLine.FindAllStringSubmatch(string(text), -1) {
		rules, _ := strconv.Atoi(m[1])
		ns, _ := strconv.ParseFloat(m[2], 64)
		n, _ := strconv.Atoi(m[3])
		worst[rules], allocs = max(worst[rules], ns), max(allocs, n)
	}
	var counts []string
	for _, n := range []int{10, 100, 1000, 10000} {
		if worst[n] == 0 {
			return nil, fmt.Errorf("run go test -bench: %s", lastLine(string(text)))
		}
		counts = append(counts, fmt.Sprintf("%.0f ns at %d", worst[n], n))
	}
	return []row{
		judged("one decision, 1,000 rules, the slowest kind", "2 µs, no allocation", fmt.Sprintf("%.0f ns, %d allocations", worst[1000], allocs), worst[1000] < 2000 && allocs == 0),
		within("one decision, 10,000 rules against 10", "flat", fmt.Sprintf("%.2f × (%s)", worst[10000]/worst[10], strings.Join(counts, ", ")), worst[10000]/worst[10], 1.5),
	}, nil
}
