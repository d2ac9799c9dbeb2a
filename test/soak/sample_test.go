package soak

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// sample is the metrics of one moment, and of the launcher what the kernel says.
type sample map[string]float64

// String leaves out what no check is about.
func (m sample) String() string {
	s := ""
	for _, name := range watched {
		s += fmt.Sprintf("%s %.0f, ", name, m[name])
	}
	return s + fmt.Sprintf("requests %.0f allowed %.0f denied", m[`hermes_wrap_requests_total allow`], m[`hermes_wrap_requests_total deny`])
}

// watched is what must not grow.
var watched = []string{"process_open_fds", "go_goroutines", "process_resident_memory_bytes", "launcher_fds", "launcher_memory_bytes"}

func (s *soak) sample() sample {
	m, err := scrape(s.metrics)
	if err != nil {
		s.t.Errorf("scrape: %v", err)
		return sample{}
	}
	if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid)); err == nil {
		m["launcher_fds"] = float64(len(fds))
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid)); err == nil {
		pages, _ := strconv.Atoi(strings.Fields(string(b))[1])
		m["launcher_memory_bytes"] = float64(pages * os.Getpagesize())
	}
	return m
}

func scrape(socket string) (sample, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get("http://metrics/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(b)))
	if err != nil {
		return nil, err
	}
	m := sample{}
	for name, f := range families {
		for _, v := range f.Metric {
			key := name
			for _, l := range v.Label {
				key += " " + l.GetValue()
			}
			m[key] = v.Counter.GetValue() + v.Gauge.GetValue() + float64(v.Histogram.GetSampleCount())
		}
	}
	return m, nil
}

// awaitMetrics waits until the run serves them: the load has just begun then.
func (s *soak) awaitMetrics() sample {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := scrape(s.metrics); err == nil {
			return s.sample()
		}
		if time.Now().After(end) {
			s.t.Fatalf("no metrics after 30 seconds: %s", s.stderr.String())
		}
	}
}

// flat compares the first third of the samples after the warm-up with the last.
// The number of connections moves within bounds; growth does not come back.
func flat(t *testing.T, all []sample) {
	t.Helper()
	if len(all) < 6 {
		t.Errorf("samples: got %d, want at least 6", len(all))
		return
	}
	all = all[len(all)/4:]
	third := len(all) / 3
	// A few samples say little about numbers that move; that everything is let go
	// of at the end is looked at in any case.
	factor := 1.35
	if len(all) > 100 {
		factor = 1.1
	}
	for _, name := range watched {
		first, last := median(all[:third], name), median(all[len(all)-third:], name)
		slack := 30.0
		if strings.HasSuffix(name, "_bytes") {
			slack = 8 << 20
		}
		t.Logf("%-30s first %.0f, last %.0f", name, first, last)
		if last > factor*first+slack || first == 0 {
			t.Errorf("%s: got %.0f in the first third and %.0f in the last, want no growth", name, first, last)
		}
	}
}

func median(all []sample, name string) float64 {
	var values []float64
	for _, m := range all {
		values = append(values, m[name])
	}
	slices.Sort(values)
	return values[len(values)/2]
}
