// Command load is what the soak runs inside: it keeps connections of every kind
// busy, ends some of them at random, and writes down what became of each
// numbered request. It works until a file "stop" comes into its directory, and
// ends with a file "exit".
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// config is what the soak wants; it stands in the file "load.json".
type config struct {
	API, WS, TCP, Pass, Broken, Secret string // host:port

	HTTP1, HTTP2, Sockets, Tunnels, Passed, Breakers int // workers
	// Pause is the mean pause of a worker between two requests (milliseconds).
	Pause int
}

// load is the state that all workers share.
type load struct {
	config
	number atomic.Int64
	tried  [2]atomic.Int64 // tunnels that were begun: tcp, pass
	opened [2]atomic.Int64 // of those, the ones that carried bytes

	mu  sync.Mutex
	out *bufio.Writer
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run() error {
	b, err := os.ReadFile("load.json")
	if err != nil {
		return err
	}
	l := &load{}
	if err := json.Unmarshal(b, &l.config); err != nil {
		return err
	}
	f, err := os.Create("outcome")
	if err != nil {
		return err
	}
	l.out = bufio.NewWriter(f)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, kind := range []struct {
		n    int
		work func(context.Context)
	}{
		{l.HTTP1, l.http1},
		{l.HTTP2, l.http2},
		{l.Sockets, l.socket},
		{l.Tunnels, func(ctx context.Context) { l.tunnel(ctx, 0) }},
		{l.Passed, func(ctx context.Context) { l.tunnel(ctx, 1) }},
		{l.Breakers, l.breaker},
	} {
		for range kind.n {
			wg.Go(func() {
				for ctx.Err() == nil {
					kind.work(ctx)
					l.rest(ctx)
				}
			})
		}
	}
	await("stop")
	cancel()
	wg.Wait()
	for i, name := range []string{"tcp", "pass"} {
		fmt.Fprintf(l.out, "tunnels %s %d %d\n", name, l.tried[i].Load(), l.opened[i].Load())
	}
	if err := l.out.Flush(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.WriteFile("stopped", nil, 0o600); err != nil {
		return err
	}
	await("exit")
	return nil
}

// await polls for a file, so that nothing but the workspace connects the soak
// with its load.
func await(name string) {
	for {
		if _, err := os.Stat(name); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// rest pauses between requests.
func (l *load) rest(ctx context.Context) {
	t := time.NewTimer(time.Duration(rand.IntN(2*l.Pause)+1) * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// next gives the number of a request.
func (l *load) next() int64 { return l.number.Add(1) }

// outcome writes down what became of a request: the status, or 0 when there was
// no answer.
func (l *load) outcome(kind string, n int64, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.out, "%s %d %d\n", kind, n, status)
}

// chance is true once in n times.
func chance(n int) bool { return rand.IntN(n) == 0 }
