package proxy

import (
	"cmp"
	"time"
)

// Limits bounds what one sandbox can make the proxy hold or wait for. A zero
// field means the default named with it.
type Limits struct {
	// Connections is the number of captured connections at a time (4096). One
	// more is reset.
	Connections int
	// Sniff is how long a client may take to send its first bytes (30 s).
	Sniff time.Duration
	// Refuse is how long a denied client may take to send its first bytes
	// before it is reset; protocols in which the server speaks first wait
	// that long (3 s).
	Refuse time.Duration
	// Handshake bounds a TLS handshake on either side (15 s).
	Handshake time.Duration
	// Head bounds a request's head from its first byte to its last (20 s).
	Head time.Duration
	// KeepAlive is how long a connection may stay open between requests (3 min).
	KeepAlive time.Duration
	// Dial bounds looking a name up and connecting to one of its addresses (20 s).
	Dial time.Duration
	// Idle is how long a body, stream or tunnel may pause in both directions.
	// Models think for a long time (45 min).
	Idle time.Duration
	// Linger bounds how long a refused client's remaining bytes are read, so
	// that it sees the answer instead of a reset (2 s).
	Linger time.Duration
	// HeadBytes bounds a request's head (64 KiB), Headers its fields (200).
	HeadBytes int
	Headers   int
	// HeadsHeld is how many bytes HTTP/1 heads of more than 8 KiB may take, all
	// connections together (64 MiB). One more is answered with 503.
	HeadsHeld int64
	// Streams is the number of concurrent HTTP/2 streams a connection (250).
	Streams int
	// Requests is the number of HTTP/2 requests at a time, all connections
	// together (512). One more is answered with 503.
	Requests int
	// Uploads is the number of those at a time that send more than 16 KiB, or do not
	// say how much (128). Each takes up to 512 KiB, as its server pleases.
	Uploads int
	// Waiting is how many bytes of WebSocket messages may wait to be judged, all
	// sockets together (64 MiB). The socket that needs one more is closed (1013).
	Waiting int64
	// MessageBytes bounds a request whose body is judged (16 MiB), also unpacked.
	// A larger one is refused.
	MessageBytes int64
	// MessagesHeld is how many bytes such requests, and answers that are judged,
	// may take in memory all together (256 MiB). One more is answered with 503.
	MessagesHeld int64
	// Message bounds reading such a body, or the commands of a push (1 min).
	Message time.Duration
	// Answer bounds the answer of a model (256 MiB). A longer one is cut off.
	Answer int64
	// DNSQueries is the number of queries on one TCP connection (1000).
	DNSQueries int
}

// lingerBytes bounds what Linger reads.
const lingerBytes = 8 << 20

func (l Limits) withDefaults() Limits {
	return Limits{
		Connections:  cmp.Or(l.Connections, 4096),
		Sniff:        cmp.Or(l.Sniff, 30*time.Second),
		Refuse:       cmp.Or(l.Refuse, 3*time.Second),
		Handshake:    cmp.Or(l.Handshake, 15*time.Second),
		Head:         cmp.Or(l.Head, 20*time.Second),
		KeepAlive:    cmp.Or(l.KeepAlive, 3*time.Minute),
		Dial:         cmp.Or(l.Dial, 20*time.Second),
		Idle:         cmp.Or(l.Idle, 45*time.Minute),
		Linger:       cmp.Or(l.Linger, 2*time.Second),
		HeadBytes:    cmp.Or(l.HeadBytes, 64<<10),
		Headers:      cmp.Or(l.Headers, 200),
		HeadsHeld:    cmp.Or(l.HeadsHeld, 64<<20),
		Streams:      cmp.Or(l.Streams, 250),
		Requests:     cmp.Or(l.Requests, 512),
		Uploads:      cmp.Or(l.Uploads, 128),
		Waiting:      cmp.Or(l.Waiting, 64<<20),
		MessageBytes: cmp.Or(l.MessageBytes, 16<<20),
		MessagesHeld: cmp.Or(l.MessagesHeld, 256<<20),
		Message:      cmp.Or(l.Message, time.Minute),
		Answer:       cmp.Or(l.Answer, 256<<20),
		DNSQueries:   cmp.Or(l.DNSQueries, 1000),
	}
}
