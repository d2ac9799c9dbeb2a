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
	// A launch is over before a collection would pay, and has no work for two:
	// more processors are more threads to make and to wake. settle changes both.
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(1)
	os.Exit(newCommandLine().execute(os.Args[1:]))
}
