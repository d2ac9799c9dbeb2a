package proxy

import "sync/atomic"

// buffered counts the bytes that are held until they are judged, over all
// connections. No limit of the sandbox counts the memory of the proxy.
type buffered struct{ held atomic.Int64 }

// reserve takes n bytes, unless that would be more than most in all.
func (b *buffered) reserve(n, most int64) bool {
	if b.held.Add(n) <= most {
		return true
	}
	b.held.Add(-n)
	return false
}

// release gives back what reserve took.
func (b *buffered) release(n int64) { b.held.Add(-n) }
