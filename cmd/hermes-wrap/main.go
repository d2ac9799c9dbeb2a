// Command hermes-wrap runs a command and everything it starts inside one
// sandbox that one policy describes. This package wires: it reads flags and
// the environment, calls policy, sandbox and netpolicy, prints, and exits.
package main

import (
	"os"
	"runtime"
	"runtime/debug"

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
	if isPidOne() {
		os.Exit(pidOne())
	}
	// A launch is over before a collection would pay; settle switches it on
	// again, for as long as the command runs.
	debug.SetGCPercent(-1)
	os.Exit(newCommandLine().execute(os.Args[1:]))
}
