package main

import (
	"github.com/hermes-wrap/hermes-wrap/prove/escape"
	"github.com/hermes-wrap/hermes-wrap/prove/faults"
	"github.com/hermes-wrap/hermes-wrap/prove/fuzz"
	"github.com/hermes-wrap/hermes-wrap/prove/kernels"
	"github.com/hermes-wrap/hermes-wrap/prove/load"
	"github.com/hermes-wrap/hermes-wrap/prove/supply"
)

// parts are run in this order.
var parts = []part{
	{"supply", supply.Run},
	{"escapes", escape.Run},
	{"faults", faults.Run},
	{"load", load.Run},
	{"kernels", kernels.Run},
	{"fuzz", fuzz.Run},
}
