package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/docker"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// isProxyRole tells whether our own executable is the proxy. Standard input is
// then the control connection to the launcher.
func isProxyRole() bool { return len(os.Args) == 1 && os.Args[0] == sandbox.ProxyArg0 }

// What the launcher and the proxy say to each other: first setup, hello, doors
// and a ready event in this order, then orders and events as they come.
type (
	// proxySetup comes with the policy and the secrets, each sealed, the audit
	// file, the run's memory, and with Authority the key of the run's authority.
	proxySetup struct {
		Run    string `json:"run"`
		RunDir string `json:"run_dir"`
		// Launcher and Cgroups are for cleaning up after a launcher that was killed.
		Launcher int      `json:"launcher"`
		Cgroups  []string `json:"cgroups"`
		Required bool     `json:"required"` // a record that fails ends the run
		Inspect  bool     `json:"inspect"`
		// Writer is its name in the record, Restarts how many proxies of the run have
		// ended before.
		Writer    string `json:"writer"`
		Restarts  int    `json:"restarts,omitempty"`
		Authority bool   `json:"authority,omitempty"`
		// AuditKey is for the proxy's own chain in this run and good for nothing else.
		AuditKey audit.ChainKey `json:"audit_key"`
		// Token is what clients must show in the weaker tier, where they speak to
		// the proxy as one; "" where connections are captured.
		Token string `json:"token,omitempty"`
	}
	// proxyHello answers it; CA is public. With an authority that was just made
	// comes its key, sealed.
	proxyHello struct {
		CA    []byte `json:"ca"`
		Error string `json:"error"`
	}
	// proxyDoors comes with the listeners, the resolver sockets, and with Metrics
	// the listener for metrics and /proc/PID/statm of the proxy.
	proxyDoors struct {
		Listeners int  `json:"listeners"`
		Metrics   bool `json:"metrics"`
	}
	// proxyOrder comes with a policy and the secrets for it, each sealed. The
	// proxy swaps what it judges by, as a whole, and answers with Done.
	proxyOrder struct {
		Seq int `json:"seq"` // above 0
		// Audit tells that it comes with the file to write the record to instead.
		Audit bool `json:"audit,omitempty"`
		// Stats asks for numbers; it comes with nothing.
		Stats bool `json:"stats,omitempty"`
		// Ping tells that there is nothing to do.
		Ping bool `json:"ping,omitempty"`
		// Inbound names the entry of network.publish for which it comes with a
		// connection and its line. Such an order is not answered.
		Inbound string `json:"inbound,omitempty"`
		// Docker tells the same of a connection from inside to the container engine.
		Docker bool `json:"docker,omitempty"`
	}
	// proxyEvent answers proxyDoors (Ready) and proxyOrder (Done), or asks for
	// something. One field beside Error and Closed is set.
	proxyEvent struct {
		Ready bool   `json:"ready,omitempty"`
		Fatal string `json:"fatal,omitempty"` // the proxy cannot go on
		Stop  string `json:"stop,omitempty"`  // the policy ends the run, and why
		// Refresh names a credential whose source is to be read again.
		Refresh string `json:"refresh,omitempty"`
		// Done is the Seq of an order that was carried out, or with Error was not.
		Done   int    `json:"done,omitempty"`
		Closed int    `json:"closed,omitempty"` // tunnels that the new policy forbids
		Error  string `json:"error,omitempty"`
		// Stats answers the order for numbers.
		Stats *proxy.Stats `json:"stats,omitempty"`
	}
)

// proxyMemory is where garbage is collected whatever it costs. What the proxy's
// bounds let it hold stays below it (docs/limits.md).
const proxyMemory = 1 << 30

// runProxyRole serves one run until the launcher is gone. If the launcher was
// killed, it also removes the run's directory.
func runProxyRole() int {
	// net/http prints bytes that a server chose to the global logger.
	log.SetOutput(io.Discard)
	debug.SetMemoryLimit(proxyMemory)
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
	if len(files) < 4 || setup.Authority && len(files) < 5 {
		return setup, errors.New("BUG: the launcher sent no policy, secrets, audit file and memory")
	}
	server, err := newServer(c, setup, files)
	var hello proxyHello
	var key []*os.File
	if err == nil {
		defer server.Audit.Close()
		hello.CA, key, err = introduce(server.Authority, setup)
	}
	if err != nil {
		hello.Error = err.Error()
	}
	sendErr := c.Send(hello, key...)
	closeFiles(key)
	if sendErr != nil || err != nil {
		return setup, nil // the launcher is gone, or says what it was told
	}
	var doors proxyDoors
	if files, err = c.Receive(&doors); err != nil {
		return setup, nil // the launch failed elsewhere, or the launcher died
	}
	if doors.Metrics && len(files) >= 2 {
		serveMetrics(server, files[len(files)-2:])
		files = files[:len(files)-2]
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
	obeyLauncher(c, server)
	endService(server)
	return setup, c.Close() // tells the launcher that the record is closed
}

// introduce gives the certificate of the run's authority, and its key if it was
// just made: the next proxy of the run goes on with it.
func introduce(a *proxy.Authority, setup proxySetup) (cert []byte, key []*os.File, err error) {
	if a == nil {
		return nil, nil, nil
	}
	if setup.Authority {
		return a.CertPEM(), nil, nil
	}
	exported, err := a.Export()
	if err != nil {
		return nil, nil, err
	}
	f, err := sandbox.SealedFile("hermes-wrap-authority", exported)
	if err != nil {
		return nil, nil, err
	}
	return a.CertPEM(), []*os.File{f}, nil
}

// authority goes on with the run's, or makes it.
func authority(setup proxySetup, files []*os.File) (*proxy.Authority, error) {
	if !setup.Authority {
		return proxy.NewAuthority(nil)
	}
	defer files[4].Close()
	exported, err := sandbox.ReadSealed(files[4])
	if err != nil {
		return nil, err
	}
	return proxy.LoadAuthority(exported, nil)
}

func newServer(c *sandbox.Channel, setup proxySetup, files []*os.File) (*proxy.Server, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("make the proxy non-dumpable: %w", err)
	}
	p, secrets, err := readSealed(files[:2])
	if err != nil {
		return nil, err
	}
	s := &proxy.Server{}
	if s.Rules, err = proxyRules(p, secrets); err != nil {
		return nil, err
	}
	if s.Memory, err = proxy.OpenMemory(files[3]); err != nil {
		return nil, err
	}
	s.Restarts = setup.Restarts
	s.Docker = docker.Compile(p.Network.Docker, setup.Run)
	if s.Audit, err = proxyRecord(files[2], setup, s.Memory.Lines); err != nil {
		return nil, err
	}
	if s.RootCAs, err = roots(p.Network.CA, secrets); err != nil {
		return nil, err
	}
	if setup.Inspect {
		if s.Authority, err = authority(setup, files); err != nil {
			return nil, err
		}
	}
	s.Limits.Connections = p.Limits.Connections
	if setup.Required {
		s.Fatal = func(err error) { _ = c.Send(proxyEvent{Fatal: shortened(err.Error())}) }
	}
	s.Refresh = func(name string) { _ = c.Send(proxyEvent{Refresh: name}) }
	s.Stop = func(reason string) { _ = c.Send(proxyEvent{Stop: shortened(reason)}) }
	return s, s.Recall()
}

// serveMetrics takes the listener and the proxy's own statm, which it could not
// open itself. Without metrics a run goes on.
func serveMetrics(s *proxy.Server, files []*os.File) {
	s.Statm = files[1]
	l, err := net.FileListener(files[0])
	files[0].Close()
	if err != nil {
		return
	}
	go func() { _ = s.ServeMetrics(context.Background(), l) }()
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
