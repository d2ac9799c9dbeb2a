package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/hermes-wrap/hermes-wrap/prove/escape"
	"github.com/hermes-wrap/hermes-wrap/prove/faults"
	"github.com/hermes-wrap/hermes-wrap/prove/fuzz"
	"github.com/hermes-wrap/hermes-wrap/prove/kernels"
	"github.com/hermes-wrap/hermes-wrap/prove/load"
	"github.com/hermes-wrap/hermes-wrap/prove/posture"
	"github.com/hermes-wrap/hermes-wrap/prove/report"
	"github.com/hermes-wrap/hermes-wrap/prove/supply"
)

// parts are run in this order.
var parts = []part{
	{name: "supply", run: supply.Run},
	{name: "posture", run: posture.Run},
	{name: "escapes", run: escape.Run},
	{name: "peers", run: peers, long: true},
	{name: "faults", run: faults.Run},
	{name: "load", run: load.Run},
	{name: "kernels", run: kernels.Run},
	{name: "fuzz", run: fuzz.Run},
}

// peers runs the table of escapes against all other sandboxes that are known.
func peers(ctx context.Context, o report.Options) (report.Part, error) {
	install := exec.CommandContext(ctx, filepath.Join(o.Root, "prove", "escape", "install-peers"), filepath.Join(o.Work, "tools"))
	if out, err := install.CombinedOutput(); err != nil {
		return report.Part{}, fmt.Errorf("install other sandboxes: %w\n%s", err, out)
	}
	o.Sandbox = "all"
	return escape.Run(ctx, o)
}
