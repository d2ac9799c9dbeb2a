// Command hermes-wrap runs a command and everything it starts inside one
// sandbox that one policy describes. This package wires: it reads flags and
// the environment, calls policy, sandbox and netpolicy, prints, and exits.
package main

import (
	"os"
	"runtime"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

func init() {
	// The parent-death signal of the sandbox's init is bound to the thread
	// that forks it, so that thread must live as long as the launcher.
	runtime.LockOSThread()
}

func main() {
	sandbox.ProbeStage(sandbox.DoorHooks())
	sandbox.RunStage()
	if isProxyRole() {
		os.Exit(runProxyRole())
	}
	os.Exit(newCommandLine().execute(os.Args[1:]))
}
