package sandbox

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// When the proxy has no certificates to give, the launcher ends the container,
// and that is not the reason.
func TestWhyNot(t *testing.T) {
	cause, start := errors.New("the proxy's reason"), errors.New("procReady not received")
	for _, c := range []struct {
		name                string
		start, blobs, doors error
		want                error
	}{
		{"the proxy failed first", start, stepErr(StepProxy, cause), io.ErrUnexpectedEOF, cause},
		{"the proxy failed after the network was there", nil, stepErr(StepProxy, cause), nil, cause},
		{"the doors failed", start, nil, stepErr(StepProxy, cause), cause},
		{"init was gone before it had the blobs", start, unix.EPIPE, io.ErrUnexpectedEOF, start},
		{"init was gone", start, nil, io.ErrUnexpectedEOF, start},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &run{messages: make(chan message)}
			close(r.messages)
			if got := r.whyNot(c.start, c.blobs, c.doors); !errors.Is(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
