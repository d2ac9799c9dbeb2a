package proxy

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// scrape reads the metrics as Prometheus does, and gives the value of each
// sample, of a histogram the number of its observations.
func (w *world) scrape(socket string) map[string]float64 {
	w.t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("http://metrics/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	text := readBody(w.t, resp)
	if got := expfmt.ResponseFormat(resp.Header).FormatType(); got != expfmt.TypeTextPlain {
		w.t.Errorf("content type: got %v, want text", resp.Header["Content-Type"])
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		w.t.Fatalf("parse: %v\n%s", err, text)
	}
	all := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := name
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			all[key] = m.Counter.GetValue() + m.Gauge.GetValue() + float64(m.Histogram.GetSampleCount())
		}
	}
	return all
}

func (w *world) serveMetrics() (socket string) {
	w.t.Helper()
	socket = filepath.Join(w.t.TempDir(), "m")
	l, err := net.Listen("unix", socket)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.srv.ServeMetrics(ctx, l) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("serve metrics: %v", err)
		}
	})
	return socket
}

func TestMetrics(t *testing.T) {
	n := testNetwork()
	w := newWorld(t, n)
	w.srv.Rules.Traffic = policy.TrafficBudget{Hosts: 7}
	w.srv.Statm = strings.NewReader("900 800 700 600 0 500 0\n")
	socket := w.serveMetrics()
	w.serve("api.example.org", 80, &echo{})
	const tail = " HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n"
	w.raw("api.example.org", 80, "", "GET /public/x"+tail)
	w.raw("api.example.org", 80, "", "GET /secret"+tail)
	w.raw("nobody.example.org", 80, "", "GET / HTTP/1.1\r\nHost: nobody.example.org\r\n\r\n")
	if c, err := net.Dial("tcp", w.door("db.example.org", 5432)); err == nil { // nothing listens there
		_, _ = c.Read(make([]byte, 1))
		_ = c.Close()
	}
	w.await(func() bool { return w.srv.metrics.total(audit.KindUpstream) == 1 }, "the failed dial is counted")
	w.srv.Reload(w.srv.Rules)
	all := w.scrape(socket)
	for name, want := range map[string]float64{
		"hermes_wrap_requests_total{verdict=allow}":    1,
		"hermes_wrap_requests_total{verdict=deny}":     1,
		"hermes_wrap_connections_total{verdict=deny}":  1,
		"hermes_wrap_connections_total{verdict=allow}": 0,
		"hermes_wrap_denials_total{kind=request}":      1,
		"hermes_wrap_upstream_errors_total":            1,
		"hermes_wrap_faults_total":                     0,
		"hermes_wrap_reloads_total":                    1,
		"hermes_wrap_audit_failures_total":             0,
		"hermes_wrap_decision_seconds":                 2,
		"hermes_wrap_upstream_seconds":                 1,
		"hermes_wrap_budget_limit{budget=hosts}":       7,
		"hermes_wrap_budget_used{budget=hosts}":        2,
		"process_resident_memory_bytes":                float64(800 * os.Getpagesize()),
	} {
		if got, ok := all[name]; got != want || !ok {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if _, ok := all["hermes_wrap_budget_limit{budget=bytes_out}"]; ok {
		t.Error("got a limit of bytes, want none: the policy has none")
	}
	for _, name := range []string{
		"hermes_wrap_audit_events_total", "hermes_wrap_sent_bytes_total", "hermes_wrap_received_bytes_total", "go_goroutines", "process_open_fds",
	} {
		if all[name] <= 0 {
			t.Errorf("%s: got %v, want more than 0", name, all[name])
		}
	}
}

// No host, path, name or reason is in the metrics, whatever was asked for.
func TestMetricsHoldNothingThatAnAgentChose(t *testing.T) {
	w := newWorld(t, testNetwork())
	before := len(w.srv.metricsText())
	for i := range 50 {
		host := strings.Repeat("x", i+1) + ".marker.example.org"
		w.raw(host, 80, "", "GET /marker HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
	}
	text := string(w.srv.metricsText())
	if strings.Contains(text, "marker") {
		t.Errorf("got %q, want no text of the agent's", text)
	}
	if lines := strings.Count(text, "\n"); len(text) > before+1000 {
		t.Errorf("size: got %d bytes in %d lines after 50 hosts, want about %d bytes", len(text), lines, before)
	}
}

func TestMetricsAnswerNothingElse(t *testing.T) {
	w := newWorld(t, testNetwork())
	socket := w.serveMetrics()
	for _, c := range []struct{ request, want string }{
		{"GET /metrics HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n", "200"},
		{"GET / HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n", "404"},
		{"POST /metrics HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n", "405"},
	} {
		c2, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c2.Write([]byte(c.request)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 64)
		n, _ := c2.Read(b)
		_ = c2.Close()
		if got := statusLine(string(b[:n])); !strings.Contains(got, c.want) {
			t.Errorf("%q: got %q, want %s", c.request, got, c.want)
		}
	}
}

func TestOpenDescriptors(t *testing.T) {
	before := openDescriptors()
	a, b := net.Pipe() // takes none
	defer func() { _ = a.Close(); _ = b.Close() }()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "l"))
	if err != nil {
		t.Fatal(err)
	}
	if got := openDescriptors(); got != before+1 {
		t.Errorf("with a listener: got %d, want %d", got, before+1)
	}
	_ = l.Close()
	if got := openDescriptors(); got != before {
		t.Errorf("without: got %d, want %d", got, before)
	}
}
