package main

import "github.com/hermes-wrap/hermes-wrap/prove/kernels"

// parts are run in this order.
var parts = []part{
	{"kernels", kernels.Run},
}
