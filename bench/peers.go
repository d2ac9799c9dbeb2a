package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// peer is another proxy that stands between the clients and the server, on
// loopback and as an ordinary user. Those that intercept end TLS and read each
// request, as our proxy does.
type peer struct {
	name, needs string
	intercepts  bool
	// prepare writes what the program needs into dir, and gives its words and the
	// file with the authority that clients must trust.
	prepare func(dir string, n *network, port int) (words []string, ca string, err error)
}

func peers() []peer {
	return []peer{
		{"mitmproxy", "mitmdump", true, prepareMitmproxy},
		{"squid, ssl-bump", "squid", true, prepareSquid},
		{"smokescreen, passing", "smokescreen", false, prepareSmokescreen},
	}
}

// prepareMitmproxy has it do nothing but intercept.
func prepareMitmproxy(dir string, n *network, port int) ([]string, string, error) {
	return []string{
		"mitmdump", "--quiet", "--mode", "regular", "--listen-host", "127.0.0.1", "--listen-port", fmt.Sprint(port),
		"--set", "confdir=" + dir, "--set", "flow_detail=0", "--set", "ssl_verify_upstream_trusted_ca=" + n.ca,
	}, filepath.Join(dir, "mitmproxy-ca-cert.pem"), nil
}

// prepareSmokescreen opens the loopback range, which it refuses otherwise. It
// reads no TLS, so that clients see the server's own certificate.
func prepareSmokescreen(_ string, n *network, port int) ([]string, string, error) {
	return []string{"smokescreen", "--listen-ip", "127.0.0.1", "--listen-port", fmt.Sprint(port), "--allow-range", "127.0.0.0/8"}, n.ca, nil
}

// helpers are where distributions keep the program that makes certificates for squid.
func helpers() []string {
	return []string{"/usr/lib/squid/security_file_certgen", "/usr/lib64/squid/security_file_certgen", "/usr/libexec/squid/security_file_certgen"}
}

// prepareSquid bumps every connection and allows by method and path, as the rule
// of the sandbox does; nothing is cached or logged.
func prepareSquid(dir string, n *network, port int) ([]string, string, error) {
	pair, authority, err := issueAuthority("squid.test")
	if err != nil {
		return nil, "", err
	}
	ca, both := filepath.Join(dir, "squid-ca.pem"), filepath.Join(dir, "squid.pem")
	if err := errors.Join(os.WriteFile(ca, authority, 0o600), os.WriteFile(both, append(pair, authority...), 0o600)); err != nil {
		return nil, "", err
	}
	helper := ""
	for _, path := range helpers() {
		if _, err := os.Stat(path); err == nil {
			helper = path
		}
	}
	if helper == "" {
		return nil, "", errors.New("squid is built without ssl-bump")
	}
	db := filepath.Join(dir, "certificates")
	if out, err := exec.Command(helper, "-c", "-s", db, "-M", "4MB").CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("make squid's certificate store: %w: %s", err, lastLine(string(out)))
	}
	config := filepath.Join(dir, "squid.conf")
	text := fmt.Sprintf(`http_port 127.0.0.1:%[1]d ssl-bump tls-cert=%[2]s generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
sslcrtd_program %[3]s -s %[4]s -M 4MB
sslcrtd_children 4 startup=2 idle=1
acl first at_step SslBump1
ssl_bump peek first
ssl_bump bump all
acl connect method CONNECT
acl get method GET
acl place urlpath_regex ^/bench/
http_access allow connect
http_access allow get place
http_access deny all
tls_outgoing_options cafile=%[5]s
cache deny all
cache_mem 0
access_log none
cache_log %[6]s/cache.log
cache_store_log none
pid_filename %[6]s/squid.pid
coredump_dir %[6]s
shutdown_lifetime 0 seconds
max_filedescriptors 16384
visible_hostname bench
`, port, both, helper, db, n.ca, dir)
	return []string{"squid", "-N", "-f", config}, ca, os.WriteFile(config, []byte(text), 0o600)
}

// issueAuthority makes an authority with its key, as one file each.
func issueAuthority(name string) (key, cert []byte, err error) {
	a, err := newAuthority(name)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), a.pem(), nil
}

// startPeer runs a peer and waits until it carries a request. Programs that only
// root finds (in /usr/sbin) count as present.
func (s *shop) startPeer(p peer, n *network) (addr, ca string, stop func(), err error) {
	path := findProgram(p.needs)
	if path == "" {
		return "", "", nil, errNotPresent
	}
	dir, err := os.MkdirTemp(s.root, "peer-")
	if err != nil {
		return "", "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", nil, err
	}
	free := port(l)
	_ = l.Close()
	words, ca, err := p.prepare(dir, n, free)
	if err != nil {
		return "", "", nil, err
	}
	cmd := s.command(append([]string{path}, words[1:]...))
	log, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return "", "", nil, err
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return "", "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	addr = fmt.Sprintf("127.0.0.1:%d", free)
	if err := waitForPeer(addr, ca, n); err != nil {
		stop()
		text, _ := os.ReadFile(log.Name())
		return "", "", nil, fmt.Errorf("%w: %s", err, lastLine(string(text)))
	}
	return addr, ca, stop, nil
}

var errNotPresent = errors.New("not present")

func findProgram(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

// waitForPeer makes a request through a peer until one succeeds: its authority's
// file may appear only after its start.
func waitForPeer(addr, ca string, n *network) (err error) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		pool := x509.NewCertPool()
		text, readErr := os.ReadFile(ca)
		if err = readErr; err != nil || !pool.AppendCertsFromPEM(text) {
			continue
		}
		target := n.target("https", false)
		c := &httpsClient{via: addr, addr: target[0], config: &tls.Config{ServerName: target[1], RootCAs: pool}}
		err = c.get()
		c.close()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("start: %w", err)
}

// crowd is one measurement of all proxies: so many clients, each on one
// connection or on a new one for each request.
type crowd struct {
	clients int
	mode    string
}

func (c crowd) String() string {
	if c.mode == "keep" {
		return fmt.Sprintf("%d keep-alive clients", c.clients)
	}
	return fmt.Sprintf("%d clients, a new connection each request", c.clients)
}

// peerRounds is how often each proxy has its turn.
const peerRounds = 3

// measurePeers compares inspected HTTPS with other proxies: the same clients, the
// same server, by turns.
func measurePeers(s *shop) ([]row, error) {
	n, err := s.openNetwork()
	if err != nil {
		return nil, err
	}
	defer n.close()
	var rows []row
	ways := []way{{name: "direct"}, {name: "hermes-wrap", inside: true, intercepts: true}}
	for _, p := range peers() {
		addr, ca, stop, err := s.startPeer(p, n)
		if err != nil {
			rows = append(rows, row{What: "peer: " + p.name, Figure: err.Error()})
			continue
		}
		defer stop()
		ways = append(ways, way{name: p.name, via: addr, ca: ca, intercepts: p.intercepts})
	}
	for _, c := range []crowd{{1, "keep"}, {64, "keep"}, {256, "keep"}, {1, "new"}, {64, "new"}, {256, "new"}} {
		got := make([][]load, len(ways))
		for range peerRounds {
			for i, w := range ways {
				l, err := n.load(s, c, w)
				if err != nil {
					l.failed = err
				}
				got[i] = append(got[i], l)
			}
		}
		rows = append(rows, crowdRows(c, ways, got)...)
	}
	return rows, nil
}

// crowdRows writes what one crowd saw. The sandbox must be ahead of every peer
// that intercepts, in requests a second.
func crowdRows(c crowd, ways []way, got [][]load) []row {
	rates := make([]float64, len(ways))
	figures := make([]string, len(ways))
	best := 0.0
	for i, w := range ways {
		m, err := medianLoad(got[i])
		if err != nil {
			figures[i] = "not measured: " + err.Error()
			continue
		}
		rates[i] = m.rate
		figures[i] = fmt.Sprintf("%.0f requests a second, p50 %.2f ms, p99 %.1f ms", m.rate, m.p50*1e3, m.p99*1e3)
		if w.intercepts && !w.inside {
			best = max(best, m.rate)
		}
	}
	var rows []row
	for i, w := range ways {
		what := fmt.Sprintf("%s: %s", c, w.name)
		if i > 0 && rates[i] > 0 && rates[0] > 0 {
			figures[i] += fmt.Sprintf("; %.2f of direct", rates[i]/rates[0])
		}
		if w.inside && best > 0 {
			rows = append(rows, judged(what, "ahead of every one that intercepts", figures[i], rates[i] > best))
			continue
		}
		rows = append(rows, row{What: what, Figure: figures[i]})
	}
	return rows
}

// medianLoad gives the measurement with the median rate.
func medianLoad(all []load) (load, error) {
	var rates series
	for _, l := range all {
		if l.failed != nil {
			return l, errors.New(strings.TrimSpace(l.failed.Error()))
		}
		rates = append(rates, l.rate)
	}
	m := rates.median()
	for _, l := range all {
		if l.rate == m {
			return l, nil
		}
	}
	return load{}, errors.New("BUG: no median")
}
