package kernels

import (
	"fmt"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
)

// What policies/limits.yaml sets, and the room that the bombs have above it.
const (
	limitMiB    = 160
	bombMiB     = 320
	limitPids   = 48
	bombPids    = 100
	extraPids   = 16 // a cgroup's, for init
	limitCPU    = 300
	mostCPU     = 450 // a period that began early and one that ends late
	leastBurned = 600 // what a free processor gives
)

// group are the limits that a cgroup holds; standIn those that something else
// holds where there is none.
var (
	group = []want{
		{Name: "memory", Script: wrapped("limits", "memory"), judge: func(a protocol.Answer) verdict { return judgeMemory(a, limitMiB) }},
		{Name: "processes", Script: wrapped("limits", "fork"), judge: judgeFork},
		{Name: "processor", Script: wrapped("limits", "burn"), judge: judgeBurn},
		nothingLeft,
	}
	standIn = []want{
		{Name: "memory", Script: wrapped("fewer-limits", "memory"), judge: func(a protocol.Answer) verdict { return judgeMemory(a, bombMiB-1) }},
		{Name: "processes", Script: wrapped("fewer-limits", "fork"), judge: judgeFork},
		nothingLeft,
	}
	// free shows that the bombs do go off.
	free = want{Name: "bombs without a sandbox", Script: "cp -f /in/guest probe && ./probe memory && ./probe fork && ./probe burn", judge: judgeFree}
	// nothingLeft looks for what runs should have taken away with them.
	nothingLeft = want{
		Name: "leftovers", judge: judgeNothing,
		Script: `find /sys/fs/cgroup -type d -name '*hermes-wrap*' 2>/dev/null; ps -eo stat=,args= | grep -v '^Z' | grep hermes-wrap | grep -v -e 'sh -c' -e grep; true`,
	}
)

// lastNumber gives the number after the last line with this word.
func lastNumber(text, word string) int {
	n := -1
	for line := range strings.Lines(text) {
		var got int
		if _, err := fmt.Sscanf(line, word+" %d", &got); err == nil {
			n = got
		}
	}
	return n
}

func judgeMemory(a protocol.Answer, most int) verdict {
	n := lastNumber(a.Stdout, "MiB")
	return judgeLimit(a, n, n >= 0 && n <= most && a.Exit != 0, fmt.Sprintf("%d MiB of %d", n, limitMiB))
}

func judgeFork(a protocol.Answer) verdict {
	n := lastNumber(a.Stdout, "processes")
	return judgeLimit(a, n, n >= limitPids/2 && n <= limitPids+extraPids, fmt.Sprintf("%d processes of %d", n, limitPids))
}

func judgeBurn(a protocol.Answer) verdict {
	n := lastNumber(a.Stdout, "thousandths")
	return judgeLimit(a, n, n >= 1 && n <= mostCPU, fmt.Sprintf("%d thousandths of a processor of %d", n, limitCPU))
}

// judgeLimit judges what became of a limit: n is what was measured, below 0 where
// nothing ran, and is says it in words.
func judgeLimit(a protocol.Answer, n int, held bool, is string) (v verdict) {
	v.Short, v.Said = "held", endOf(a)
	switch {
	case a.Exit == exitRefused && n < 0:
		v.Short = "refused"
		v.Wrong = append(v.Wrong, oneRemedy(a.Stderr)...)
	case !held || a.Late:
		v.Short = "not held"
		v.wrong("%s, exit %d: %s%s", is, a.Exit, a.Stdout, a.Stderr)
	}
	return v
}

// endOf is how a run ended, without the numbers.
func endOf(a protocol.Answer) string { return fmt.Sprintf("exit %d\n%s", a.Exit, a.Stderr) }

func judgeFree(a protocol.Answer) (v verdict) {
	v.Short = "went off"
	memory, forks, burned := lastNumber(a.Stdout, "MiB"), lastNumber(a.Stdout, "processes"), lastNumber(a.Stdout, "thousandths")
	if memory < bombMiB || forks < bombPids || burned < leastBurned {
		v.wrong("without a sandbox: %d MiB, %d processes, %d thousandths: %s", memory, forks, burned, a.Stderr)
	}
	return v
}

func judgeNothing(a protocol.Answer) (v verdict) {
	v.Short = "none"
	if a.Exit != 0 || strings.TrimSpace(a.Stdout) != "" {
		v.Short = "left"
		v.wrong("left behind: %s%s", a.Stdout, a.Stderr)
	}
	return v
}
