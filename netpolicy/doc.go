// Package netpolicy judges one connection, one request or one address against
// the network section of a policy. It is pure: it reads no file, asks no
// resolver, keeps no clock and knows nothing of Linux. The package proxy
// carries what this package allows.
//
// There is one host type ([Host]), one path form ([CanonicalPath]) and one
// decision type ([Decision]). Whatever a front end reads (SNI, Host,
// :authority, a resolver question) goes through the same strict parser, and
// what was judged is what must be forwarded: the canonical path, not the raw
// one; the classified address, not the name again.
//
// The order of judging is: [Engine.Connection] for the host and port,
// [Engine.Request] for each request of an inspected connection, and
// [Engine.Address] for each address that the name resolved to. All three must
// allow. The zero Engine, Host, Decision and Class refuse.
package netpolicy
