package soak

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// decided is what the record says of one number.
type decided struct{ allowed, denied int }

// checkRecord compares what the load saw with what is on record: a request that
// was answered has exactly one decision, one that was not has at most one.
func (s *soak) checkRecord() {
	events, tunnels, reloads := s.readRecord()
	s.compare(events, tunnels)
	if got, want := reloads[audit.Allow], s.reloads; got != want {
		s.t.Errorf("reloads on record: got %d, want %d", got, want)
	}
	if got, want := reloads[audit.Deny], s.refused; got != want {
		s.t.Errorf("refused reloads on record: got %d, want %d", got, want)
	}
	if r := wraptest.Run(s.t, s.Bare(s.dir, s.Bin, "audit", "verify", s.record), 10*time.Minute); r.Exit != 0 {
		s.t.Errorf("audit verify: got exit %d, want 0\n%s%s", r.Exit, r.Out, r.Err)
	}
}

func (s *soak) readRecord() (events map[string]decided, tunnels map[string]int, reloads map[audit.Verdict]int) {
	events, tunnels, reloads = map[string]decided{}, map[string]int{}, map[audit.Verdict]int{}
	files, err := audit.Files(s.record)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, file := range files {
		all, err := audit.ReadFile(file)
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range all {
			switch e := &all[i]; {
			case e.Kind == audit.KindDropped:
				s.t.Errorf("record: got %d events left out, want none", e.Count)
			case e.Kind == audit.KindFault:
				s.t.Errorf("record: got a fault: %s", e.Reason)
			case e.Kind == audit.KindReload:
				reloads[e.Verdict]++
			case e.Kind == audit.KindConnection && e.Verdict == audit.Allow:
				tunnels[e.Host]++
			case e.Kind == audit.KindRequest:
				count(events, e)
			}
		}
	}
	s.t.Logf("record: %d files, %d numbers", len(files), len(events))
	return events, tunnels, reloads
}

// count takes the decision about a numbered request. What ends an open WebSocket
// later is another event: it has no status.
func count(events map[string]decided, e *audit.Event) {
	if !strings.HasPrefix(e.Path, "/n/") && !strings.HasPrefix(e.Path, "/ws/") {
		return
	}
	number := e.Path[strings.LastIndexByte(e.Path, '/')+1:]
	d := events[number]
	switch {
	case e.Verdict == audit.Allow:
		d.allowed++
	case e.Status != 0:
		d.denied++
	}
	events[number] = d
}

func (s *soak) compare(events map[string]decided, tunnels map[string]int) {
	f, err := os.Open(filepath.Join(s.dir, "outcome"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	statuses := map[int]int{}
	known, wrong := 0, 0
	for in := bufio.NewScanner(f); in.Scan(); {
		var kind, number string
		var status, opened int
		if n, _ := fmt.Sscanf(in.Text(), "tunnels %s %d %d", &kind, &status, &opened); n == 3 {
			s.compareTunnels(kind, status, opened, tunnels)
			continue
		}
		if n, _ := fmt.Sscanf(in.Text(), "%s %s %d", &kind, &number, &status); n != 3 {
			s.t.Fatalf("outcome: got %q", in.Text())
		}
		statuses[status]++
		d := events[number]
		if d != (decided{}) {
			known++
		}
		if !d.fits(status) {
			if wrong++; wrong <= 20 {
				s.t.Errorf("%s request %s with status %d: got %+v on record, want each decision once", kind, number, status, d)
			}
		}
	}
	s.t.Logf("outcomes by status: %v", statuses)
	if known != len(events) {
		s.t.Errorf("record: got %d numbers, of which the load knows %d", len(events), known)
	}
	if statuses[200] == 0 || statuses[403] == 0 || statuses[101] == 0 || statuses[502] == 0 {
		s.t.Errorf("outcomes: got %v, want some of 101, 200, 403 and 502", statuses)
	}
}

// fits tells whether the record agrees with what the client saw.
func (d decided) fits(status int) bool {
	switch {
	case status == 0: // the connection ended before an answer
		return d.allowed+d.denied <= 1
	case status == 403:
		return d == decided{denied: 1}
	default:
		return d == decided{allowed: 1}
	}
}

func (s *soak) compareTunnels(kind string, tried, opened int, tunnels map[string]int) {
	host := map[string]string{"tcp": hostTCP, "pass": hostPass}[kind]
	if got := tunnels[host]; got < opened || got > tried || opened == 0 {
		s.t.Errorf("%s tunnels on record: got %d, want between the %d that carried bytes and the %d that were begun", kind, got, opened, tried)
	}
}
