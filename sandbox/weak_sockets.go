package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Landlock restricts sockets with a path from ABI 9: those made outside of the
// domain are then reached where a rule grants it only.
const weakUnix = 9

// HostSocket is a local socket of the machine's that the caller can open.
type HostSocket struct {
	Path string `json:"path"`
	// What says whose it is.
	What string `json:"what"`
	// Starts says that who speaks there starts programs outside by it, so a
	// sandbox that reaches it is none.
	Starts bool `json:"starts,omitempty"`
}

// wellKnownSockets are where daemons listen that do much for whoever asks. A
// path that begins with a variable is for a machine where that is set.
var wellKnownSockets = []HostSocket{
	{"/run/docker.sock", "a container engine", true},
	{"/var/run/docker.sock", "a container engine", true},
	{"$XDG_RUNTIME_DIR/docker.sock", "a container engine", true},
	{"$HOME/.docker/run/docker.sock", "a container engine", true},
	{"$HOME/.docker/desktop/docker.sock", "a container engine", true},
	{"$DOCKER_HOST", "a container engine", true},
	{"/run/podman/podman.sock", "a container engine", true},
	{"$XDG_RUNTIME_DIR/podman/podman.sock", "a container engine", true},
	{"$CONTAINER_HOST", "a container engine", true},
	{"/run/containerd/containerd.sock", "a container engine", true},
	{"/run/k3s/containerd/containerd.sock", "a container engine", true},
	{"$CONTAINERD_ADDRESS", "a container engine", true},
	{"/run/crio/crio.sock", "a container engine", true},
	{"/run/buildkit/buildkitd.sock", "a container engine", true},
	{"/var/lib/lxd/unix.socket", "a container engine", true},
	{"/var/snap/lxd/common/lxd/unix.socket", "a container engine", true},
	{"/var/lib/incus/unix.socket", "a container engine", true},
	{"/run/libvirt/libvirt-sock", "a manager of virtual machines", true},
	{"/run/systemd/private", "the service manager", true},
	{"$XDG_RUNTIME_DIR/systemd/private", "the user's service manager", true},
	{"$XDG_RUNTIME_DIR/bus", "the session bus", true},
	{"$DBUS_SESSION_BUS_ADDRESS", "the session bus", true},
	{"/run/dbus/system_bus_socket", "the system bus", false},
	{"$SSH_AUTH_SOCK", "an SSH agent", false},
	{"$XDG_RUNTIME_DIR/gnupg/S.gpg-agent", "a GnuPG agent", false},
	{"$HOME/.gnupg/S.gpg-agent", "a GnuPG agent", false},
	{"$GPG_AGENT_INFO", "a GnuPG agent", false},
	{"$XDG_RUNTIME_DIR/$WAYLAND_DISPLAY", "the screen", false},
	{"/tmp/.X11-unix/X0", "the screen", false},
}

// FindSockets lists the well-known sockets that exist and that the caller can
// open. Those it does not know are reached all the same.
func FindSockets(environ []string) (found []HostSocket) {
	vars := map[string]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	for _, s := range wellKnownSockets {
		s.Path = socketPath(os.Expand(s.Path, func(name string) string { return vars[name] }))
		real, err := filepath.EvalSymlinks(s.Path)
		if err != nil || !filepath.IsAbs(s.Path) {
			continue
		}
		st, err := os.Stat(real)
		// connect(2) needs the right to write.
		if err != nil || st.Mode()&fs.ModeSocket == 0 || unix.Access(real, unix.W_OK) != nil {
			continue
		}
		if s.Path = real; !slices.ContainsFunc(found, func(f HostSocket) bool { return f.Path == real }) {
			found = append(found, s)
		}
	}
	return found
}

// socketPath is the path in an address as variables hold it: "unix:///run/x",
// "unix:path=/run/x,guid=1", "/run/x:1:1".
func socketPath(s string) string {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "unix:"), "path=")
	s = strings.TrimPrefix(s, "//")
	s, _, _ = strings.Cut(s, ",")
	s, _, _ = strings.Cut(s, ":")
	return s
}

// weakSockets opens local sockets and listening where the policy consents to it.
func (c *compiler) weakSockets() error {
	w := c.plan.Weak
	if !w.Sockets {
		if len(c.p.Filesystem.Sockets) > 0 {
			c.plan.Warnings = append(c.plan.Warnings, "filesystem.sockets: without namespaces no local socket can be opened; these are left out")
		}
		return nil
	}
	c.plan.Filter.Sockets = true
	if w.SocketsHeld {
		return nil
	}
	for _, s := range c.h.Sockets {
		if s.Starts {
			return c.lackOfSockets(fmt.Sprintf("keeping away from %s at %q, which starts programs outside", s.What, s.Path))
		}
		w.Reached = append(w.Reached, s)
	}
	for _, h := range c.v.hidden {
		if h.res.mode&fs.ModeSocket == 0 {
			continue
		}
		if strings.HasPrefix(h.rule, "filesystem.hide") {
			return c.lackOfSockets(fmt.Sprintf("hiding the socket %q (%s, %s)", h.res.real, h.rule, h.pos))
		}
		w.Reached = append(w.Reached, HostSocket{Path: h.res.real, What: h.rule})
	}
	return nil
}

func (c *compiler) lackOfSockets(feature string) error {
	return &LackError{
		Layer: policy.LayerSockets, Feature: feature,
		Needed: fmt.Sprintf("namespaces, or Landlock ABI %d", weakUnix), Found: fmt.Sprintf("Landlock ABI %d, and %s", c.plan.Abi, c.h.NoNamespaces.Found),
		Hint: "start hermes-wrap where that socket is not: do not mount it into the container, or run as a user who cannot open it",
	}
}

// weakShm grants /dev/shm with the consent to sockets, for semaphores and shared
// memory by name, unless directories of runs lie in it: Landlock could not except
// them.
func (c *compiler) weakShm() {
	const shm = "/dev/shm"
	if !c.plan.Weak.Sockets {
		return
	}
	if c.plan.Weak.Shm = !c.h.RunsInShm && !within(c.h.Run, shm); c.plan.Weak.Shm {
		c.showHost(shm, true, "the host's own, for semaphores and shared memory by name")
		return
	}
	c.plan.Warnings = append(c.plan.Warnings, shm+" stays closed, since directories of runs lie in it; set XDG_RUNTIME_DIR to a directory of yours to open it")
}

// RunsInShm tells whether directories of the caller's runs may lie in /dev/shm.
func RunsInShm() bool {
	_, err := os.Lstat(runtimeShm())
	return !errors.Is(err, fs.ErrNotExist)
}

// weakSocketWords say what "sockets" in require.may_degrade has opened.
func (p Plan) weakSocketWords() string {
	w := p.Weak
	if !w.Sockets {
		return ""
	}
	s := "; local sockets as the policy allows: "
	switch {
	case w.SocketsHeld:
		s += "those made inside, and outside those that filesystem.sockets lists"
	default:
		s += "EVERY one outside that your user can open is reached" + w.reachedWords()
		if p.Abi < weakSignal {
			s += ", abstract ones too"
		}
	}
	if w.Shm {
		s += "; /dev/shm is the host's own"
	}
	if w.Network {
		s += "; servers inside listen on the machine's own addresses, and who connects to them is not judged"
	}
	return s
}

func (w *Weak) reachedWords() string {
	if len(w.Reached) == 0 {
		return " (of the well-known ones none was found)"
	}
	var names []string
	for _, s := range w.Reached {
		names = append(names, s.What+" at "+s.Path)
	}
	return " (" + strings.Join(names, ", ") + ")"
}
