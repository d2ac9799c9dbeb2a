// Command goclient makes requests with net/http: goclient [METHOD URL]…
// CLIENT_DIAL replaces the address of every connection, for a run without a
// resolver that knows the test names.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	client := newClient(os.Getenv("CLIENT_DIAL"))
	for args := os.Args[1:]; len(args) >= 2; args = args[2:] {
		if err := request(client, args[0], args[1]); err != nil {
			fmt.Printf("%v\n=== error net/http\n", err)
		}
	}
}

func newClient(address string) *http.Client {
	transport := &http.Transport{ForceAttemptHTTP2: true}
	if address != "" {
		transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(to)
			if err != nil {
				return nil, err
			}
			var d net.Dialer
			return d.DialContext(ctx, network, net.JoinHostPort(address, port))
		}
	}
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func request(client *http.Client, method, url string) error {
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	version := "1.1"
	if answer.ProtoMajor == 2 {
		version = "2"
	}
	fmt.Printf("%s\n=== %d %s\n", body, answer.StatusCode, version)
	return nil
}
