package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// HouseProxy is the proxy of the house that hermes-wrap runs in. Everything
// goes through it by CONNECT, requests without TLS too: it then carries bytes
// and rewrites nothing.
type HouseProxy struct {
	choose func(*url.URL) (*url.URL, error)
}

// NewHouseProxy takes what the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY
// hold. It gives nil when there is no proxy. Errors name the variable and
// nothing of its value, which may hold a password.
func NewHouseProxy(secure, plain, none string) (*HouseProxy, error) {
	for _, v := range []struct{ name, value string }{{"HTTPS_PROXY", secure}, {"HTTP_PROXY", plain}} {
		if err := checkHouseProxy(v.name, v.value); err != nil {
			return nil, err
		}
	}
	if secure == "" && plain == "" {
		return nil, nil
	}
	config := httpproxy.Config{HTTPSProxy: secure, HTTPProxy: plain, NoProxy: none}
	return &HouseProxy{choose: config.ProxyFunc()}, nil
}

func checkHouseProxy(name, value string) error {
	if value == "" {
		return nil
	}
	if !strings.Contains(value, "://") {
		value = "http://" + value // as everybody reads "proxy:3128"
	}
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Hostname() == "":
		return fmt.Errorf("read %s: not the URL of a proxy", name)
	case u.Scheme == "http", u.Scheme == "https":
	default:
		return fmt.Errorf("read %s: a proxy must be http:// or https://, and %s:// is neither", name, u.Scheme)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("read %s: not the URL of a proxy", name)
		}
	}
	return nil
}

// way is the proxy for a connection, or nil where NO_PROXY names the host.
func (p *HouseProxy) way(what scheme, h netpolicy.Host, port uint16) (*url.URL, error) {
	if p == nil {
		return nil, nil
	}
	return p.choose(&url.URL{Scheme: string(what), Host: net.JoinHostPort(h.String(), strconv.Itoa(int(port)))})
}

// houseProxyError is what went wrong with the house's proxy.
type houseProxyError struct {
	reason string
	err    error // for the record; nil when reason says it all
}

func (e *houseProxyError) Error() string {
	if e.err == nil {
		return e.reason
	}
	return e.reason + ": " + e.err.Error()
}
func (e *houseProxyError) Unwrap() error { return e.err }

// dialThrough opens a tunnel to target ("host:port") through the house's proxy.
// The proxy is the operator's: its address is dialled whatever its range.
func (s *Server) dialThrough(ctx context.Context, via *url.URL, target string) (net.Conn, error) {
	c, err := s.dialHouse(ctx, via)
	if err != nil {
		return nil, &houseProxyError{"the house's proxy cannot be reached", err}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err = askHouse(c, via, target)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// dialHouse connects to the proxy itself, and verifies it where it speaks TLS.
func (s *Server) dialHouse(ctx context.Context, via *url.URL) (net.Conn, error) {
	port := uint16(80)
	if via.Scheme == "https" {
		port = 443
	}
	h, port, err := netpolicy.ParseHostPort(via.Host, port)
	if err != nil {
		return nil, errors.New("its address is not host:port")
	}
	addrs := []netip.Addr{h.Addr()}
	if !h.IsAddr() {
		if addrs, err = s.resolve(ctx, h); err != nil {
			return nil, err
		}
	}
	c, err := s.dialAny(ctx, addrs, port)
	if err != nil || via.Scheme != "https" {
		return c, err
	}
	t := tls.Client(c, &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: s.RootCAs, Time: s.Now, ServerName: h.String(), NextProtos: []string{"http/1.1"},
	})
	ctx, cancel := context.WithTimeout(ctx, s.limits.Handshake)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return t, nil
}

// askHouse sends CONNECT and reads the answer's head to its last byte and not
// further: what follows is the server's.
func askHouse(c net.Conn, via *url.URL, target string) error {
	ask := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if u := via.User; u != nil {
		password, _ := u.Password()
		ask += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(c, ask+"\r\n"); err != nil {
		return &houseProxyError{"the house's proxy ended the connection", err}
	}
	head, err := readAnswerHead(c)
	if err != nil {
		return &houseProxyError{"the house's proxy gave no answer to CONNECT", err}
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return &houseProxyError{reason: "the house's proxy answered CONNECT with something that is not HTTP"}
	}
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusProxyAuthRequired:
		return &houseProxyError{reason: "the house's proxy wants a user and a password, or others than it was given (407)"}
	}
	return &houseProxyError{reason: fmt.Sprintf("the house's proxy refuses to connect to the server (%d)", resp.StatusCode)}
}

// maxAnswerHead bounds the head of an answer to CONNECT.
const maxAnswerHead = 16 << 10

// httpMark is what every answer begins with.
const httpMark = "HTTP/"

// readAnswerHead reads up to the empty line, byte by byte: a reader that reads
// ahead would keep the server's first bytes, and the kernel could not carry the
// rest on its own.
func readAnswerHead(c net.Conn) ([]byte, error) {
	var head []byte
	var b [1]byte
	for len(head) < maxAnswerHead {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return nil, err
		}
		head = append(head, b[0])
		if len(head) == len(httpMark) && string(head) != httpMark {
			return nil, errors.New("it does not speak HTTP")
		}
		if bytes.HasSuffix(head, []byte("\r\n\r\n")) || bytes.HasSuffix(head, []byte("\n\n")) {
			return head, nil
		}
	}
	return nil, errors.New("its head is too long")
}
