package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// proxyArg0 is how our own executable knows that it is the proxy. Standard
// input is then the control connection to the launcher.
const proxyArg0 = "hermes-wrap: proxy"

func isProxyRole() bool { return len(os.Args) == 1 && os.Args[0] == proxyArg0 }

// What the launcher and the proxy say to each other, in this order.
type (
	// proxySetup comes with the policy (sealed) and the audit file.
	proxySetup struct {
		Run    string `json:"run"`
		RunDir string `json:"run_dir"`
		// Launcher and Cgroups are for cleaning up after a launcher that was killed.
		Launcher int      `json:"launcher"`
		Cgroups  []string `json:"cgroups"`
		Required bool     `json:"required"` // a record that fails ends the run
		Inspect  bool     `json:"inspect"`
		// Token is what clients must show in the weaker tier, where they speak to
		// the proxy as one; "" where connections are captured.
		Token string `json:"token,omitempty"`
	}
	// proxyHello answers it; CA is public.
	proxyHello struct {
		CA    []byte `json:"ca"`
		Error string `json:"error"`
	}
	// proxyDoors comes with the listeners, then the resolver sockets.
	proxyDoors struct {
		Listeners int `json:"listeners"`
	}
	// proxyEvent answers proxyDoors (Ready), and later reports a failure.
	proxyEvent struct {
		Ready bool   `json:"ready"`
		Fatal string `json:"fatal"`
	}
)

// runProxyRole serves one run until the launcher is gone. If the launcher was
// killed, it also removes the run's directory.
func runProxyRole() int {
	// net/http prints bytes that a server chose to the global logger.
	log.SetOutput(io.Discard)
	c := sandbox.OpenChannel(0)
	setup, err := serveProxy(c)
	if err != nil {
		_ = c.Send(proxyEvent{Fatal: err.Error()})
		fmt.Fprintln(os.Stderr, "hermes-wrap: proxy:", err)
		return exitFailed
	}
	sweepAfter(setup.RunDir)
	sandbox.SweepCgroupsOf(setup.Cgroups, setup.Launcher)
	return exitOK
}

// sweepAfter removes the run's directory. The kernel drops a killed launcher's
// lock a moment after it closes the connection, and a child that was about to be
// executed holds it until then.
func sweepAfter(dir string) {
	for range 100 {
		sandbox.SweepRunDir(dir)
		if _, err := os.Lstat(dir); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func serveProxy(c *sandbox.Channel) (setup proxySetup, err error) {
	files, err := c.Receive(&setup)
	if err != nil {
		return setup, err
	}
	if len(files) != 2 {
		return setup, errors.New("BUG: the launcher sent no policy and no audit file")
	}
	server, err := newServer(c, setup, files)
	hello := proxyHello{}
	if err != nil {
		hello.Error = err.Error()
	} else if server.Authority != nil {
		hello.CA = server.Authority.CertPEM()
	}
	if sendErr := c.Send(hello); sendErr != nil || err != nil {
		return setup, nil // the launcher is gone, or says what it was told
	}
	var doors proxyDoors
	if files, err = c.Receive(&doors); err != nil {
		return setup, nil // the launch failed elsewhere, or the launcher died
	}
	if doors.Listeners > len(files) {
		return setup, errors.New("BUG: the launcher announced more listeners than it sent")
	}
	if err := sandbox.ConfineProxyCalls(); err != nil {
		return setup, err
	}
	if err := openForBusiness(server, setup.Token, files[:doors.Listeners], files[doors.Listeners:]); err != nil {
		return setup, err
	}
	if err := c.Send(proxyEvent{Ready: true}); err != nil {
		return setup, nil
	}
	var nothing struct{}
	_, _ = c.Receive(&nothing) // returns when the launcher is gone
	_ = server.Close()
	return setup, nil
}

func newServer(c *sandbox.Channel, setup proxySetup, files []*os.File) (*proxy.Server, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("make the proxy non-dumpable: %w", err)
	}
	b, err := sandbox.ReadSealed(files[0])
	if err != nil {
		return nil, err
	}
	p, err := policy.FromJSON(b)
	if err != nil {
		return nil, err
	}
	s := &proxy.Server{}
	if s.Rules.Engine, err = netpolicy.Compile(p.Network, p.Inference.Routes...); err != nil {
		return nil, err
	}
	if s.Audit, err = audit.New(files[1], setup.Run); err != nil {
		return nil, err
	}
	if s.RootCAs, err = roots(p.Network.CA); err != nil {
		return nil, err
	}
	if setup.Inspect {
		if s.Authority, err = proxy.NewAuthority(nil); err != nil {
			return nil, err
		}
	}
	s.Limits.Connections = p.Limits.Connections
	if setup.Required {
		s.Fatal = func(err error) { _ = c.Send(proxyEvent{Fatal: err.Error()}) }
	}
	return s, nil
}

// roots are the host's certificate authorities and those of the policy.
func roots(extra []policy.Path) (*x509.CertPool, error) {
	if len(extra) == 0 {
		return nil, nil // the system's, read when they are first needed
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read certificate authorities: %w", err)
	}
	for _, f := range extra {
		b, err := os.ReadFile(f.Abs)
		if err != nil {
			return nil, fmt.Errorf("%s: network.ca: %w", f.Pos, err)
		}
		if !pool.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s: network.ca: %q holds no certificate", f.Pos, f.Abs)
		}
	}
	return pool, nil
}

func openForBusiness(s *proxy.Server, token string, listeners, resolvers []*os.File) error {
	ctx := context.Background()
	for _, f := range listeners {
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("use listener: %w", err)
		}
		go func() {
			if token != "" {
				_ = s.ServeExplicit(ctx, l, token)
				return
			}
			_ = s.ServeTCP(ctx, l)
		}()
	}
	for _, f := range resolvers {
		pc, err := net.FilePacketConn(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("use resolver socket: %w", err)
		}
		udp, ok := pc.(*net.UDPConn)
		if !ok {
			return errors.New("BUG: the resolver socket is not UDP")
		}
		go func() { _ = s.ServeDNS(ctx, udp) }()
	}
	return nil
}
