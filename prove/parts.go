package main

import (
	"github.com/hermes-wrap/hermes-wrap/prove/escape"
	"github.com/hermes-wrap/hermes-wrap/prove/fuzz"
	"github.com/hermes-wrap/hermes-wrap/prove/kernels"
)

// parts are run in this order.
var parts = []part{
	{"escapes", escape.Run},
	{"kernels", kernels.Run},
	{"fuzz", fuzz.Run},
}
