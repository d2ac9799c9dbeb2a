// Command client uses the container engine at DOCKER_HOST as its own clients do,
// and says what came of it, one line a step.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

var socket = strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://")

func main() {
	steps := os.Args[1:]
	if len(steps) == 1 && steps[0] == "wait" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	if len(steps) == 1 && steps[0] == "life" {
		life()
		return
	}
	for _, step := range steps {
		method, rest, _ := strings.Cut(step, " ")
		target, body, _ := strings.Cut(rest, " ")
		status, text := ask(method, target, body)
		fmt.Println(status, strings.TrimSpace(text))
	}
}

// life is one container from its beginning to its end.
func life() {
	status, text := ask("POST", "/v1.47/containers/create?name=hermes-test", `{"Image":"python:3.12-slim","Cmd":["sh"],"OpenStdin":true,"HostConfig":{"NetworkMode":"default","Binds":null}}`)
	var made struct{ ID string }
	_ = json.Unmarshal([]byte(text), &made)
	fmt.Println("create", status)
	status, _ = ask("POST", "/v1.47/containers/"+made.ID+"/start", "")
	fmt.Println("start", status)
	status, text = ask("POST", "/v1.47/containers/"+made.ID+"/exec", `{"AttachStdin":true,"AttachStdout":true,"Cmd":["cat"]}`)
	var exec struct{ ID string }
	_ = json.Unmarshal([]byte(text), &exec)
	fmt.Println("exec", status, talk("/v1.47/exec/"+exec.ID+"/start", `{"Detach":false,"Tty":false}`))
	fmt.Println("attach", talk("/v1.47/containers/"+made.ID+"/attach?stream=1&stdin=1&stdout=1", ""))
	status, text = ask("GET", "/v1.47/containers/"+made.ID+"/logs?stdout=1", "")
	fmt.Println("logs", status, strings.TrimSpace(text))
	status, _ = ask("POST", "/v1.47/containers/"+made.ID+"/wait", "")
	fmt.Println("wait", status)
}

func dial() net.Conn {
	c, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Println("connect:", err)
		os.Exit(1)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

func send(c net.Conn, method, target, body, fields string) (*http.Response, *bufio.Reader, error) {
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: docker\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, target, fields, len(body), body)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	return resp, in, err
}

func ask(method, target, body string) (int, string) {
	c := dial()
	defer func() { _ = c.Close() }()
	resp, _, err := send(c, method, target, body, "")
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// talk upgrades, says hello, ends its side, and gives what comes.
func talk(target, body string) string {
	c := dial()
	defer func() { _ = c.Close() }()
	resp, in, err := send(c, "POST", target, body, "Connection: Upgrade\r\nUpgrade: tcp\r\n") //nolint:bodyclose // the connection is closed
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Sprint(resp, err)
	}
	_, _ = io.WriteString(c, "hello")
	_ = c.(*net.UnixConn).CloseWrite()
	text, _ := io.ReadAll(in)
	return fmt.Sprintf("%q", text)
}
