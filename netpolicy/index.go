package netpolicy

import "strings"

// hostIndex finds the entries whose pattern matches a host in a number of map
// look-ups that depends on the patterns' depth and not on their number.
type hostIndex[T any] struct {
	exact  map[Host][]T
	one    map[string][]T // by what stands after "*."
	deep   map[string][]T // by what stands after "**."
	labels int            // the most labels in a key of deep
	any    []T
}

func newHostIndex[T any]() hostIndex[T] {
	return hostIndex[T]{exact: map[Host][]T{}, one: map[string][]T{}, deep: map[string][]T{}}
}

func (x *hostIndex[T]) add(g hostGlob, v T) {
	switch g.kind {
	case globExact:
		x.exact[g.host] = append(x.exact[g.host], v)
	case globOne:
		x.one[g.suffix] = append(x.one[g.suffix], v)
	case globDeep:
		x.deep[g.suffix] = append(x.deep[g.suffix], v)
		x.labels = max(x.labels, 1+strings.Count(g.suffix, "."))
	case globAny:
		x.any = append(x.any, v)
	}
}

// lists appends to buf the lists of entries that match h, and gives it back.
// A buffer of a dozen on the caller's stack is enough for any sane policy.
func (x *hostIndex[T]) lists(h Host, buf [][]T) [][]T {
	buf = appendList(buf, x.exact[h])
	buf = appendList(buf, x.any)
	if h.IsAddr() {
		return buf
	}
	if _, parent, ok := strings.Cut(h.name, "."); ok {
		buf = appendList(buf, x.one[parent])
	}
	end := len(h.name)
	for range x.labels {
		dot := strings.LastIndexByte(h.name[:end], '.')
		if dot < 0 {
			break
		}
		buf = appendList(buf, x.deep[h.name[dot+1:]])
		end = dot
	}
	return buf
}

func appendList[T any](buf [][]T, list []T) [][]T {
	if len(list) == 0 {
		return buf
	}
	return append(buf, list)
}
