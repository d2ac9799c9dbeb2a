package credential

import (
	"io"
	"strings"
	"testing"
)

// endless gives a beginning and then the same text again and again, 8 MiB in all.
type endless struct {
	begin, rest string
	given       int
}

const endlessSize = 8 << 20

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for ; n < len(p) && e.given < endlessSize; n++ {
		if at := e.given; at < len(e.begin) {
			p[n] = e.begin[at]
		} else {
			p[n] = e.rest[(at-len(e.begin))%len(e.rest)]
		}
		e.given++
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (e *endless) Close() error { return nil }

// TestWhatIsKeptBackIsBounded: the beginning of a secret, and then escapes that
// come to nothing, keep a body back; its sender must not fill the memory so.
func TestWhatIsKeptBackIsBounded(t *testing.T) {
	v := testVault(t)
	for _, c := range []struct {
		name, rest string
		cut        bool
	}{
		{"control: text", "plain text ", false},
		{"control: escaped text", `a\nb%20`, false},
		{"line ends", "\n", true},
		{"escaped line ends", `\n`, true},
		{"escaped percent signs", "%25", false},
		{"escaped backslashes", `\u005c`, false},
	} {
		for name, filter := range map[string]func(io.ReadCloser) io.ReadCloser{
			"leaving": v.Leaving,
			"coming":  func(b io.ReadCloser) io.ReadCloser { return v.Coming(b, func(Finding) {}) },
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				src := &endless{begin: testSecret[:len(testSecret)-4], rest: c.rest}
				body, got, ahead := filter(src), 0, 0
				var err error
				for b := make([]byte, 32<<10); err == nil; {
					var n int
					n, err = body.Read(b)
					ahead = max(ahead, src.given-got)
					got += n
				}
				if ahead > 4*maxHeld {
					t.Errorf("got %d bytes kept back, want no more than %d", ahead, 4*maxHeld)
				}
				if !c.cut && strings.HasPrefix(c.name, "control") && (err != io.EOF || got != endlessSize) {
					t.Errorf("got %d bytes and %v, want all", got, err)
				}
				if c.cut && err == io.EOF {
					t.Error("got the whole body, want it cut")
				}
			})
		}
	}
}
