package faults

import (
	"slices"
	"strings"
)

// launchStep is the step that a fault belongs to: what the message says, or where
// the process was.
func launchStep(r result) string {
	if slices.Contains(order[:12], r.step) {
		return r.step
	}
	f := r.fault
	switch f.role {
	case "launcher":
		return launcherStep(f)
	case "child", "proxy":
		return "proxy"
	case "runc", "runc-child":
		return "container"
	case "stage":
		if slices.Contains([]string{"socket", "bind", "listen", "setsockopt", "sendto", "recvfrom", "getsockname", "getsockopt"}, f.call) {
			return "network"
		}
		return "root"
	case "starter":
		switch f.call {
		case "prlimit64", "setrlimit":
			return "limits"
		case "connect", "socket", "unshare":
			return "self-test"
		}
		return "confine"
	case "forked":
		return "exec"
	}
	return "confine"
}

func launcherStep(f fault) string {
	switch {
	case strings.Contains(f.detail, "/run/hermes-wrap") || strings.Contains(f.detail, "/.local/state/"):
		return "runtime"
	case f.after == "":
		return "compile"
	case f.after == "compile" && strings.Contains(f.call, "landlock"):
		return "proxy"
	case f.after == "exec":
		return "end"
	}
	return "container"
}

// proxyStep is the step of the proxy that a call belongs to, as far as the call
// tells: on an established connection one looks like the other.
func proxyStep(f fault) string {
	switch {
	case strings.Contains(f.detail, "audit"):
		return "audit write"
	case strings.Contains(f.detail, "hermes-wrap-memory"):
		return "ledger memory"
	case f.call == "recvmsg" || f.call == "sendmsg" || f.role == "launcher" || strings.Contains(f.detail, "/memfd:"):
		return "reload"
	case f.call == "accept4":
		return "accept"
	case f.call == "connect" && strings.Contains(f.detail, "port=53"), strings.Contains(f.detail, "resolv") || strings.Contains(f.detail, "/etc/hosts"):
		return "resolve"
	case slices.Contains([]string{"connect", "socket", "getsockopt", "setsockopt", "getsockname", "getpeername", "bind"}, f.call):
		return "dial"
	case strings.HasPrefix(f.detail, "socket:"):
		return "streams"
	}
	return "process"
}
