package supervise

import (
	"bufio"
	"cmp"
	"context"
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

const (
	// maxAnswer bounds what is read of an answer, and of its body nothing is used.
	maxAnswer = 64 << 10
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
// counts with their number in a row. While paused is true none does.
func (c Check) Watch(ctx context.Context, dial Dialer, paused func() bool, report func(failed int, err error)) {
	began, failed, answered := time.Now(), 0, false
	for ctx.Err() == nil {
		err := c.Ask(ctx, dial)
		switch {
		case ctx.Err() != nil:
			return
		case paused != nil && paused():
			failed = 0
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

// Ask asks once. It goes to the port and nowhere else: no proxy is asked, no
// redirect is followed.
func (c Check) Ask(ctx context.Context, dial Dialer) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	status, err := c.get(ctx, dial)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("no answer from %s within %v", c.URL, c.Timeout)
	case err != nil:
		return fmt.Errorf("no answer from %s: %w", c.URL, err)
	case status < 200 || status > 399:
		return fmt.Errorf("%s answered with status %d", c.URL, status)
	}
	return nil
}

// get speaks just enough HTTP to learn the status.
func (c Check) get(ctx context.Context, dial Dialer) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, http.NoBody)
	if err != nil {
		return 0, err
	}
	req.Header.Set("User-Agent", "hermes-wrap")
	req.Close = true
	conn, err := dial(ctx, c.Port)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := req.Write(conn); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxAnswer)), req) //nolint:bodyclose // it ends with the connection
	if err != nil {
		return 0, err
	}
	// A server that is not heard out would log an error each time.
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, nil
}
