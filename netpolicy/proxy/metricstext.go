package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// metricsConnections bounds how many scrapers are served at a time.
const metricsConnections = 8

// ServeMetrics answers GET /metrics on a Unix socket, in Prometheus' text
// format, until ctx ends or the Server is closed.
func (s *Server) ServeMetrics(ctx context.Context, l net.Listener) error {
	s.start()
	h := &http.Server{
		Handler: http.HandlerFunc(s.answerMetrics), ErrorLog: s.h2.server.ErrorLog,
		ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 8 << 10,
	}
	stop, err := s.track(ctx, h)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer stop()
	if err := h.Serve(netutil.LimitListener(l, metricsConnections)); err != nil && !s.stopping(ctx) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

func (s *Server) answerMetrics(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics" {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(s.metricsText())
}

// exposition writes Prometheus' text format.
type exposition struct{ bytes.Buffer }

// family begins a metric. Its help must be one line.
func (x *exposition) family(name, kind, help string) {
	fmt.Fprintf(x, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample is one value; labels is "" or `{name="value"}`, of words that are ours.
func (x *exposition) sample(name, labels string, value float64) {
	x.WriteString(name)
	x.WriteString(labels)
	x.WriteByte(' ')
	x.WriteString(strconv.FormatFloat(value, 'g', -1, 64))
	x.WriteByte('\n')
}

func (x *exposition) one(name, kind, help string, value int64) {
	x.family(name, kind, help)
	x.sample(name, "", float64(value))
}

func (x *exposition) counter(name, help string, value int64) { x.one(name, "counter", help, value) }
func (x *exposition) gauge(name, help string, value int64)   { x.one(name, "gauge", help, value) }

func (x *exposition) histogram(name, help string, h *histogram) {
	x.family(name, "histogram", help)
	total := int64(0)
	for i, upper := range bounds {
		total += h.buckets[i].Load()
		x.sample(name+"_bucket", `{le="`+strconv.FormatFloat(upper.Seconds(), 'g', -1, 64)+`"}`, float64(total))
	}
	total += h.buckets[len(bounds)].Load()
	x.sample(name+"_bucket", `{le="+Inf"}`, float64(total))
	x.sample(name+"_sum", "", time.Duration(h.sum.Load()).Seconds())
	x.sample(name+"_count", "", float64(total))
}

// metricsText is everything there is to say.
func (s *Server) metricsText() []byte {
	var x exposition
	s.writeDecisions(&x)
	s.writeTraffic(&x)
	s.writeBudgets(&x)
	s.writeModels(&x)
	s.writeProcess(&x)
	return x.Bytes()
}

func (s *Server) writeDecisions(x *exposition) {
	m := &s.metrics
	for _, k := range []audit.Kind{audit.KindConnection, audit.KindRequest} {
		name := "hermes_wrap_" + string(k) + "s_total"
		x.family(name, "counter", "Decisions about a "+string(k)+" on its own.")
		x.sample(name, `{verdict="allow"}`, float64(m.of(k, columnAllow)))
		x.sample(name, `{verdict="deny"}`, float64(m.of(k, columnDeny)))
	}
	x.family("hermes_wrap_denials_total", "counter", "Denials, by what was denied.")
	for _, k := range countedKinds {
		x.sample("hermes_wrap_denials_total", `{kind="`+string(k)+`"}`, float64(m.of(k, columnDeny)))
	}
	x.counter("hermes_wrap_upstream_errors_total", "Allowed requests and connections that failed outside.", m.total(audit.KindUpstream))
	x.counter("hermes_wrap_faults_total", "Mistakes of the proxy itself.", m.total(audit.KindFault))
	x.counter("hermes_wrap_secrets_found_total", "Secrets and placeholders met where they must not be.", m.total(audit.KindSecret))
	x.counter("hermes_wrap_inference_calls_total", "Calls of models whose use was counted.", m.total(audit.KindInference))
	x.counter("hermes_wrap_dns_queries_total", "DNS queries.", m.queries.Load())
	x.counter("hermes_wrap_reloads_total", "Policies and secrets that were put in force after the start.", m.reloads.Load())
	x.counter("hermes_wrap_audit_events_total", "Events that the proxy handed to the audit record.", m.recorded.Load())
	x.counter("hermes_wrap_audit_failures_total", "Events that could not be recorded.", m.unwritten.Load())
	x.histogram("hermes_wrap_decision_seconds", "Time to judge the head of a request.", &m.decision)
	x.histogram("hermes_wrap_upstream_seconds", "Time from sending a request to the head of its answer.", &m.upstream)
}

func (s *Server) writeTraffic(x *exposition) {
	x.counter("hermes_wrap_sent_bytes_total", "Bytes sent to servers; those of a tunnel count as it ends or is looked at.", s.Traffic().BytesOut)
	x.counter("hermes_wrap_received_bytes_total", "Bytes received from servers; those of a tunnel count as it ends.", s.metrics.received.Load())
	x.gauge("hermes_wrap_open_connections", "Connections from inside.", s.open.Load())
	x.gauge("hermes_wrap_open_streams", "HTTP/2 requests under way.", s.streams.Load())
	x.counter("hermes_wrap_inbound_connections_total", "Connections from outside to published ports that the proxy serves.", s.metrics.inbound.Load())
	x.gauge("hermes_wrap_inbound_open_connections", "Those of them that are open.", s.openInbound())
	x.gauge("hermes_wrap_open_tunnels", "Tunnels and WebSockets from inside.", int64(s.openTunnels()))
}

// writeBudgets tells what is used up of what. A budget without a limit has no
// limit line.
func (s *Server) writeBudgets(x *exposition) {
	traffic, limit := s.Traffic(), s.rules().Traffic
	budgets := []struct {
		name        string
		used, limit float64
	}{
		{"bytes_out", float64(traffic.BytesOut), float64(limit.BytesOut)},
		{"hosts", float64(traffic.Hosts), float64(limit.Hosts)},
	}
	x.family("hermes_wrap_budget_used", "gauge", "What the run has used of a budget.")
	for _, b := range budgets {
		x.sample("hermes_wrap_budget_used", `{budget="`+b.name+`"}`, b.used)
	}
	x.family("hermes_wrap_budget_limit", "gauge", "The budget.")
	for _, b := range budgets {
		if b.limit > 0 {
			x.sample("hermes_wrap_budget_limit", `{budget="`+b.name+`"}`, b.limit)
		}
	}
}

func (s *Server) writeProcess(x *exposition) {
	x.family("process_start_time_seconds", "gauge", "When this proxy started, in Unix time. What counts decisions and events starts from 0 with each; bytes, models and budgets go on.")
	x.sample("process_start_time_seconds", "", float64(s.metrics.began.UnixMilli())/1000)
	x.counter("hermes_wrap_proxy_restarts_total", "Proxies of this run that ended before this one.", int64(s.Restarts))
	x.gauge("go_goroutines", "Goroutines of the proxy.", int64(runtime.NumGoroutine()))
	x.gauge("process_open_fds", "Open descriptors of the proxy.", int64(openDescriptors()))
	if pages, ok := residentPages(s.Statm); ok {
		x.gauge("process_resident_memory_bytes", "Resident memory of the proxy.", pages*int64(unix.Getpagesize()))
	}
}

// residentPages reads the second field of /proc/PID/statm.
func residentPages(statm io.ReaderAt) (int64, bool) {
	if statm == nil {
		return 0, false
	}
	b := make([]byte, 256)
	n, _ := statm.ReadAt(b, 0)
	fields := strings.Fields(string(b[:n]))
	if len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages, err == nil
}

// openDescriptors asks poll(2): the proxy may not look into /proc. New ones get
// the lowest free number, so a long gap is the end.
func openDescriptors() (open int) {
	const batch = 4096
	fds := make([]unix.PollFd, batch)
	for base := 0; ; base += batch {
		for i := range fds {
			fds[i] = unix.PollFd{Fd: int32(base + i)}
		}
		if _, err := unix.Poll(fds, 0); err != nil {
			return open
		}
		before := open
		for i := range fds {
			if fds[i].Revents&unix.POLLNVAL == 0 {
				open++
			}
		}
		if open == before {
			return open
		}
	}
}
