package main

import (
	"crypto/rand"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// explicitToken makes the run's token for the proxy, where clients speak to it
// as one; "" where connections are captured.
func explicitToken(p sandbox.Plan) string {
	if p.Weak == nil || !p.Weak.Network {
		return ""
	}
	return rand.Text()
}
