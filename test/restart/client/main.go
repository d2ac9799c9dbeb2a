// Command client is an agent that outlives its proxy: one process that reads
// commands from standard input and says on standard output what came of them.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const patience = 60 * time.Second

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		fmt.Println(f[0], do(f[0], f[1:]))
	}
}

func do(what string, args []string) string {
	switch what {
	case "pid":
		return fmt.Sprint(os.Getpid())
	case "get":
		return get(args[0], fresh(false))
	case "until":
		return until(args[0], args[1])
	case "post":
		return post(args[0], args[1])
	case "open":
		return open(args[0], args[1])
	case "await":
		return await(args[0])
	case "again":
		return get(args[0], kept)
	case "resolve":
		return resolve(args[0])
	case "tcp":
		return tcp(args[0])
	case "pour":
		return pour(args[0])
	case "spend":
		spend(args[0])
		return "begun"
	case "hammer":
		hammer(args[0])
		return "begun"
	case "rest":
		return rest()
	}
	return "unknown"
}

// fresh is a client that keeps no connection. Its authorities are those that the
// process read when it first needed them.
func fresh(h2 bool) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: !h2, ForceAttemptHTTP2: h2, TLSClientConfig: &tls.Config{}}}
}

var kept = &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{}}}

func request(method, url string, body io.Reader) *http.Request {
	q, err := http.NewRequest(method, url, body)
	if err != nil {
		panic(err)
	}
	if q.URL.Hostname() == "site.test" {
		q.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))
	}
	return q
}

func get(url string, c *http.Client) string { return answer(c.Do(request("GET", url, nil))) }

func post(url, body string) string {
	q := request("POST", url, strings.NewReader(body))
	q.Header.Set("Content-Type", "application/json")
	return answer(fresh(false).Do(q))
}

func answer(resp *http.Response, err error) string {
	if err != nil {
		return "error " + kind(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if err != nil {
		return "error " + kind(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(b)))
}

// kind tells a wait from an end.
func kind(err error) string {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return "timeout"
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

// until asks until the answer begins with a text.
func until(url, want string) string {
	last := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if last = get(url, fresh(false)); strings.HasPrefix(last, want) {
			return last
		}
	}
	return last
}

// streams are those that are open, and closed when they end.
var streams = map[string]chan string{}

func open(name, address string) string {
	first := make(chan error, 1)
	ended := make(chan string, 1)
	streams[name] = ended
	go func() {
		r, err := stream(name, address)
		if err != nil {
			first <- err
			return
		}
		buf := make([]byte, 1)
		_, err = r.Read(buf)
		first <- err
		_, err = io.Copy(io.Discard, r)
		ended <- fmt.Sprint("ended ", err != nil)
	}()
	if err := <-first; err != nil {
		return "error " + kind(err)
	}
	return "flows"
}

func stream(name, address string) (io.Reader, error) {
	switch name {
	case "tcp":
		c, err := net.Dial("tcp", address)
		if err == nil {
			_, err = io.WriteString(c, "tick\n")
		}
		return c, err
	case "ws":
		c, _, err := websocket.Dial(context.Background(), address, nil) //nolint:bodyclose // the library closes it
		if err != nil {
			return nil, err
		}
		return websocket.NetConn(context.Background(), c, websocket.MessageText), nil
	}
	resp, err := (&http.Client{Transport: fresh(name == "h2").Transport}).Do(request("GET", address, nil)) //nolint:bodyclose // read to its end, which is what is waited for
	if err != nil {
		return nil, err
	}
	if name == "h2" && resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s with status %d", resp.Proto, resp.StatusCode)
	}
	return resp.Body, nil
}

func await(name string) string {
	select {
	case end := <-streams[name]:
		return end
	case <-time.After(patience):
		return "goes on"
	}
}

func resolve(name string) string {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		all, err := net.DefaultResolver.LookupHost(ctx, name)
		cancel()
		if err == nil {
			return all[0]
		}
	}
	return "none"
}

// tcp asks a server for its name.
func tcp(address string) string {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return "error " + kind(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "who\n"); err != nil {
		return "error " + kind(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "error " + kind(err)
	}
	return strings.TrimSpace(line)
}

// pour sends until the connection ends.
func pour(address string) string {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return "error " + kind(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	block := make([]byte, 16<<10)
	for {
		if _, err := c.Write(block); err != nil {
			return "ended " + kind(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// spend calls a model until that is denied.
func spend(url string) {
	ended := make(chan string, 1)
	streams["spend"] = ended
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for end := time.Now().Add(patience); time.Now().Before(end); {
				if strings.HasPrefix(post(url, `{"model":"m1","messages":[{"role":"user","content":"hi"}]}`), "403") {
					return
				}
			}
		})
	}
	go func() {
		callers.Wait()
		ended <- "ended"
	}()
}

var (
	stop                     atomic.Bool
	hammers                  sync.WaitGroup
	denied, allowed, refused atomic.Int64
)

// hammer asks for what is denied, again and again, over connections of its own.
func hammer(url string) {
	for range 2 {
		hammers.Go(func() {
			for !stop.Load() {
				switch got := get(url, fresh(false)); {
				case strings.HasPrefix(got, "403"):
					denied.Add(1)
				case strings.HasPrefix(got, "error"):
					refused.Add(1)
				default:
					allowed.Add(1)
				}
			}
		})
	}
}

func rest() string {
	stop.Store(true)
	hammers.Wait()
	return fmt.Sprint("denied=", denied.Load() > 0, " refused=", refused.Load(), " allowed=", allowed.Load())
}
