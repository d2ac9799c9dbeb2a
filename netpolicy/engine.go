package netpolicy

import (
	"net/netip"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// Engine is a compiled network section. It is immutable and safe for
// concurrent use; the zero value denies everything.
type Engine struct {
	compiled bool
}

// Compile checks the network section of a policy and indexes it.
func Compile(n policy.Network) (*Engine, error) { return &Engine{}, nil }

// Connection judges a new connection to host:port before any byte is read.
func (e *Engine) Connection(h Host, port uint16) Decision { return Decision{} }

// Request judges one request.
func (e *Engine) Request(r Request) Decision { return Decision{} }

// Address judges a resolved address that is about to be dialled.
func (e *Engine) Address(a netip.Addr, port uint16) Decision { return Decision{} }

// Inspects tells whether a certificate authority is needed.
func (e *Engine) Inspects() bool { return false }

// Ports lists the ports that rules name, and 80 and 443, in order.
func (e *Engine) Ports() []uint16 { return []uint16{80, 443} }

// Pinned lists the addresses that network.hosts gives for a host.
func (e *Engine) Pinned(h Host) []netip.Addr { return nil }
