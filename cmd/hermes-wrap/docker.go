package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/docker"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// maxEngineConnections bounds the connections from inside to the container engine
// at a time; each takes a few descriptors here.
const maxEngineConnections = 64

// serveDocker gives what accepts connections from inside to the container engine
// and has the proxy serve them. The launcher connects to the engine: the proxy
// has no way there but to ask, request by request. Nil without an engine.
func (l *launch) serveDocker(px *proxyClient) func(*os.File) {
	d := l.prep.policy.Network.Docker
	if !d.Enabled() {
		return nil
	}
	dial := func() (net.Conn, error) {
		c, err := dialEngine(d.SocketPath())
		if err == nil {
			l.reachedEngine.Store(true)
		}
		return c, err
	}
	return func(f *os.File) {
		listener, err := net.FileListener(f)
		f.Close()
		if err != nil {
			l.voice.interject().warn(fmt.Sprintf("network.docker: %v; nothing inside reaches the engine", err))
			return
		}
		go func() {
			<-l.over
			listener.Close()
		}()
		room := make(chan struct{}, maxEngineConnections)
		for {
			room <- struct{}{}
			c, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // descriptors are short; they come back as connections end
				<-room
				time.Sleep(50 * time.Millisecond)
				continue
			}
			go func() {
				defer func() { <-room }()
				px.serveLine(proxyOrder{Docker: true}, c, dial)
			}()
		}
	}
}

// engineDial bounds connecting to the engine.
const engineDial = 10 * time.Second

// dialEngine connects to the engine. One that is neither root's nor this user's
// is none.
func dialEngine(path string) (net.Conn, error) {
	c, err := net.DialTimeout("unix", path, engineDial)
	if err != nil {
		return nil, err
	}
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		c.Close()
		return nil, err
	}
	var cred *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); ctlErr != nil {
		err = ctlErr
	}
	if err == nil && cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		err = fmt.Errorf("%q is served by user %d, who is neither root nor you", path, cred.Uid)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// removeLimit bounds removing the containers of a run.
const removeLimit = 30 * time.Second

// removeContainers removes what containers the run left with the engine.
func (l *launch) removeContainers() {
	d := l.prep.policy.Network.Docker
	if !l.reachedEngine.Load() {
		return // nobody could make any
	}
	n, err := removeContainersOf(d.SocketPath(), l.dir.Id)
	if err != nil {
		l.voice.warn(fmt.Sprintf("containers of this run may be left: %v; see: docker ps -a --filter label=%s=%s", err, docker.Label, l.dir.Id))
	}
	if n > 0 || err != nil {
		e := audit.Event{Kind: audit.KindRequest, Method: http.MethodDelete, Host: "docker", Rule: "network.docker", Count: int64(n), Reason: "containers of the run were removed at its end"}
		if err != nil {
			e.Reason += "; some may be left: " + err.Error()
		}
		_ = l.log.Write(e)
	}
}

// removeContainersOf removes the containers that have the label of a run.
func removeContainersOf(socket, run string) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return dialEngine(socket) }}
	list, err := askEngine(ctx, t, http.MethodGet, "/containers/json", url.Values{"all": {"1"}, "filters": {docker.OwnFilter(run)}})
	if err != nil {
		return 0, err
	}
	ids, err := docker.Left(list, run)
	if err != nil {
		return 0, err
	}
	var failed []error
	for _, id := range ids {
		if _, err := askEngine(ctx, t, http.MethodDelete, "/containers/"+id, url.Values{"force": {"1"}, "v": {"1"}}); err != nil {
			failed = append(failed, err)
			continue
		}
		n++
	}
	return n, errors.Join(failed...)
}

// askEngine makes one request. What is not there is no error: it may have been
// removing itself.
func askEngine(ctx context.Context, t *http.Transport, method, path string, query url.Values) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://docker"+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusConflict {
		return nil, fmt.Errorf("the engine answered %s with %s", method, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 8<<20))
}

// announceDocker says at each launch, whatever the flags, what an engine means.
func (l *launch) announceDocker() {
	if d := l.prep.policy.Network.Docker; d.Enabled() {
		l.voice.warn(fmt.Sprintf("the container engine at %s is open to the sandbox, within bounds: it runs as root or as you, outside of this sandbox, "+
			"and its mistakes and what the images hold are not held by anything here (docs/docker.md)", d.SocketPath()))
	}
}

// dockerLines are what is open of the engine, for explain.
func dockerLines(d policy.Docker) (out []string) {
	if !d.Enabled() {
		return nil
	}
	var images []string
	for _, n := range d.Images {
		images = append(images, n.Text)
	}
	pull := "not fetched"
	if d.Pull {
		pull = "fetched by the engine"
	}
	return []string{fmt.Sprintf("allow  network.docker: containers of %s (%s) by the engine at %s, at most %d, each with %d bytes of memory, %d processors, %d processes, no network and nothing of the host mounted (proxy; %s)",
		strings.Join(images, " "), pull, d.SocketPath(), d.Containers(), d.MemoryLimit(), d.CPULimit(), d.PidsLimit(), d.Images[0].Pos)}
}
