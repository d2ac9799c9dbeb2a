package proxy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// defaultPerHost is how many exchanges and tunnels with one host there are at a
// time, and waitingPerSlot how many more may wait for each of them.
const (
	defaultPerHost = 128
	waitingPerSlot = 4
)

// errHostBusy is the error when too much goes on with one host.
var errHostBusy = errors.New("too many connections to the host")

// hostSlots bounds what goes on with one host at a time. An HTTP/2 request
// counts like a connection. The zero value is ready for use.
type hostSlots struct {
	mu    sync.Mutex
	hosts map[string]*hostSlot
}

type hostSlot struct {
	used, limit int
	queue       []chan struct{}
}

// take waits for its turn and gives the function that ends it, which is to be
// called once. Waiting is bounded in number and in time.
func (s *hostSlots) take(ctx context.Context, host string, limit int, patience time.Duration) (release func(), err error) {
	s.mu.Lock()
	if s.hosts == nil {
		s.hosts = map[string]*hostSlot{}
	}
	slot := s.hosts[host]
	if slot == nil {
		slot = &hostSlot{}
		s.hosts[host] = slot
	}
	slot.limit = limit
	release = func() { s.release(host, slot) }
	if slot.used < limit && len(slot.queue) == 0 {
		slot.used++
		s.mu.Unlock()
		return release, nil
	}
	if len(slot.queue) >= waitingPerSlot*limit {
		s.mu.Unlock()
		return nil, errHostBusy
	}
	turn := make(chan struct{})
	slot.queue = append(slot.queue, turn)
	s.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-turn:
		return release, nil
	case <-timer.C:
		err = errHostBusy
	case <-ctx.Done():
		err = ctx.Err()
	}
	if !s.leave(slot, turn) {
		release() // the turn came in the same moment
	}
	return nil, err
}

// leave takes a waiter out of the queue, unless its turn has come.
func (s *hostSlots) leave(slot *hostSlot, turn chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(slot.queue, turn)
	if i < 0 {
		return false
	}
	slot.queue = slices.Delete(slot.queue, i, i+1)
	return true
}

// release ends a turn and lets those in that now fit.
func (s *hostSlots) release(host string, slot *hostSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot.used--
	for slot.used < slot.limit && len(slot.queue) > 0 {
		close(slot.queue[0])
		slot.queue = slot.queue[1:]
		slot.used++
	}
	if slot.used == 0 {
		delete(s.hosts, host)
	}
}
