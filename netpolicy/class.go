package netpolicy

import "net/netip"

// Class says what an address is for.
type Class uint8

// The classes. Only ClassGlobal may be dialled without a grant; ClassMetadata
// may never be.
const (
	ClassInvalid Class = iota
	ClassGlobal
	ClassLoopback
	ClassPrivate
	ClassLinkLocal
	ClassMetadata
	ClassCGNAT
	ClassMulticast
	ClassUnspecified
	ClassDocumentation
	ClassBenchmarking
	ClassTransition
	ClassReserved
)

// Classify says what an address is for.
func Classify(a netip.Addr) Class { return ClassInvalid }
