package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Dialer connects to a TCP port on the loopback of the services.
type Dialer func(ctx context.Context, port int) (net.Conn, error)

// Check asks a service by HTTP whether it works. The zero value asks nothing.
type Check struct {
	URL  string
	Port int
	// Interval is the time between two questions, Timeout how long one answer may
	// take, Grace how long after the start failures do not count.
	Interval, Timeout, Grace time.Duration
	// Failures in a row are too many.
	Failures int
}

// What an answer may be like. Nobody reads the body.
const (
	maxHealthHead = 64 << 10
	maxHealthBody = 64 << 10
	// startInterval is the time between two questions until the first good answer.
	startInterval = 500 * time.Millisecond
)

func newCheck(h policy.Health) Check {
	u, err := url.Parse(h.URL)
	if h.URL == "" || err != nil {
		return Check{}
	}
	port, err := strconv.Atoi(cmp.Or(u.Port(), "80"))
	if err != nil {
		return Check{}
	}
	return Check{
		URL: h.URL, Port: port,
		Interval: cmp.Or(time.Duration(h.Interval), defaultInterval), Timeout: cmp.Or(time.Duration(h.Timeout), defaultTimeout),
		Grace: cmp.Or(time.Duration(h.Grace), defaultGrace), Failures: cmp.Or(h.Failures, defaultFailures),
	}
}

// Watch asks until ctx ends. It reports each good answer, and each failure that
// counts with their number in a row.
func (c Check) Watch(ctx context.Context, dial Dialer, report func(failed int, err error)) {
	began, failed, answered := time.Now(), 0, false
	for ctx.Err() == nil {
		err := c.Ask(ctx, dial)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failed, answered = 0, true
			report(0, nil)
		case time.Since(began) >= c.Grace:
			failed++
			report(failed, err)
		}
		pause := c.Interval
		if !answered {
			pause = min(pause, startInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Ask asks once. It goes to the port and nowhere else: no proxy is asked and no
// redirect is followed.
func (c Check) Ask(ctx context.Context, dial Dialer) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	transport := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHealthHead,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, c.Port) },
	}
	defer transport.CloseIdleConnections()
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "hermes-wrap")
	answer, err := client.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer from %s within %v", c.URL, c.Timeout)
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxHealthBody)
	if answer.StatusCode < 200 || answer.StatusCode > 399 {
		return fmt.Errorf("%s answered with status %d", c.URL, answer.StatusCode)
	}
	return nil
}
