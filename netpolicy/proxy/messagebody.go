package proxy

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"strings"
)

var (
	errMessageSize = errors.New("the message is larger than can be judged")
	errHeld        = errors.New("too much is held")
	errCoding      = errors.New("the content's encoding cannot be read")
	errRatio       = errors.New("the content unpacks to far more than was sent")
	errValues      = errors.New("the message has more values than can be judged")
)

const (
	// maxRatio is what a packed message may grow by, beyond smallMessage. JSON
	// rarely packs better than 1:50; a bomb does 1:1000.
	maxRatio     = 200
	smallMessage = 1 << 20
	// maxValues bounds the values of one JSON message, and valueWeight is what
	// each takes in memory.
	maxValues   = 500_000
	valueWeight = 200
	firstPiece  = 4 << 10
)

// hold counts bytes that the flow keeps in memory until it ends. It tells
// whether all requests together may keep that much.
func (fl *flow) hold(n int64) bool {
	if !fl.s.bodies.reserve(n, fl.s.limits.MessagesHeld) {
		return false
	}
	if fl.msg.held == 0 {
		fl.ends = append(fl.ends, func() { fl.drop(fl.msg.held) })
	}
	fl.msg.held += n
	return true
}

// drop gives back what was held.
func (fl *flow) drop(n int64) {
	fl.s.bodies.release(n)
	fl.msg.held -= n
}

// takeAll reads to the end, and no more than most bytes. What it gives is held.
func (fl *flow) takeAll(r io.Reader, most int64) ([]byte, error) {
	if !fl.hold(firstPiece) {
		return nil, errHeld
	}
	b := make([]byte, 0, firstPiece)
	for {
		if len(b) == cap(b) {
			more := int64(cap(b))
			if !fl.hold(more) {
				return nil, errHeld
			}
			b = append(make([]byte, 0, 2*more), b...)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > most:
			return nil, errMessageSize
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		}
	}
}

// oneCoding gives the one encoding of a content, "" for none.
func oneCoding(values []string) (string, error) {
	coding := ""
	for _, c := range tokens(values) {
		switch c = strings.ToLower(c); c {
		case "identity":
		case "gzip", "x-gzip", "deflate":
			if coding != "" {
				return "", errors.New("the content is encoded twice")
			}
			coding = strings.TrimPrefix(c, "x-")
		default:
			return "", errors.New("the content has an encoding that cannot be read")
		}
	}
	return coding, nil
}

// decode unpacks a body, and no more than most bytes of it.
func (fl *flow) decode(coding string, raw []byte, most int64) ([]byte, error) {
	if coding == "" {
		return raw, nil
	}
	in := bytes.NewReader(raw)
	unpacked, err := unpack(coding, in)
	if err != nil {
		return nil, err
	}
	limit := max(smallMessage, maxRatio*int64(len(raw)))
	plain, err := fl.takeAll(unpacked, min(limit, most))
	switch {
	case errors.Is(err, errMessageSize) && limit < most:
		return nil, errRatio
	case errors.Is(err, errMessageSize), errors.Is(err, errHeld):
		return nil, err
	case err != nil || in.Len() > 0:
		return nil, errCoding
	}
	return plain, nil
}

// unpack reads gzip or deflate, which means zlib (RFC 9110, section 8.4.1.2).
func unpack(coding string, r io.Reader) (io.Reader, error) {
	var unpacked io.Reader
	var err error
	if coding == "gzip" {
		unpacked, err = gzip.NewReader(r)
	} else {
		unpacked, err = zlib.NewReader(r)
	}
	if err != nil {
		return nil, errCoding
	}
	return unpacked, nil
}

// weigh estimates what a JSON text takes in memory once it is parsed and
// written anew: many small values take far more than their text.
func weigh(text []byte) (int64, error) {
	var values int64 = 1
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ':' || c == '[' || c == '{'):
			values++
		}
	}
	if values > maxValues {
		return 0, errValues
	}
	return values*valueWeight + 2*int64(len(text)), nil
}
