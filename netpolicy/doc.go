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
// Patterns mean the same everywhere. In a host, "*." is one label more and
// "**." one or several, never the apex. In a path, "*" is one segment that is
// there or a run of characters in a segment, and "**" any number of segments;
// letter case counts. In the value of a query parameter "*" is any run of
// characters. An allow clause must hold the whole request: each value of a
// repeated parameter. A deny clause needs to be touched only: it also denies
// the path with a trailing slash, with path parameters (";x") or without empty
// segments, and a repeated parameter of which one value matches. It does not
// guess at servers that fold letter case or drop trailing dots and spaces.
//
// A rule with a protocol inside HTTP claims the requests that look like it to
// the most lenient server, and only rules of that protocol then allow them:
// first the head, then each message, by the [Claim] of the decision. Patterns
// over text are strict in "allow" and loose in "deny", see policy.Match.
//
// The order of judging is: [Engine.Connection] for the host and port,
// [Engine.Request] for each request of an inspected connection, and
// [Engine.Address] for each address that the name resolved to. All three must
// allow. The zero Engine, Host, Decision and Class refuse.
package netpolicy
