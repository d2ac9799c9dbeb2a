package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// orderLimit bounds how long the proxy may take to swap its rules. One that takes
// longer is killed: which rules it uses is not known, and without that nothing
// may go on. The next one begins with those that were in force for certain.
const orderLimit = 10 * time.Second

// lateGrace is for a launcher that was stopped itself: the answer may be there
// already, and only not read.
const lateGrace = time.Second

// The answers to an order while no proxy serves, and to one whose proxy ended.
var (
	errAway       = errors.New("the proxy is being started again; try again in a moment")
	errOver       = errors.New("the run ends")
	errUnanswered = errors.New("the proxy ended before it answered; what was in force before stays in force")
)

// pendingOrder is an order that waits for its answer.
type pendingOrder struct {
	answer chan proxyEvent // has room for one
	force  *inForce        // what is in force once it is carried out; nil: what was
}

// deliver passes on an answer. What is in force is known here and now, before
// anything else that the proxy says or does.
func (p *proxyClient) deliver(e proxyEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, ok := p.pending[e.Done]
	if !ok {
		return
	}
	delete(p.pending, e.Done)
	if o.force != nil && e.Error == "" {
		p.inForce = *o.force
	}
	o.answer <- e
}

// update has the proxy judge by another policy, and returns when it does. After
// an error the old one is in force.
func (p *proxyClient) update(pol policy.Policy, secrets proxySecrets) (closed int, err error) {
	files, err := sealed(pol, secrets)
	if err != nil {
		return 0, err
	}
	defer closeFiles(files)
	l, err := p.serving()
	if err != nil {
		return 0, err
	}
	e, err := p.orderOn(l, proxyOrder{}, files, &inForce{pol, secrets})
	return e.Closed, err
}

// order has the proxy do something, and waits until it is done.
func (p *proxyClient) order(o proxyOrder, files []*os.File) (closed int, err error) {
	l, err := p.serving()
	if err != nil {
		return 0, err
	}
	e, err := p.orderOn(l, o, files, nil)
	return e.Closed, err
}

// stats asks the proxy for its numbers.
func (p *proxyClient) stats() (*proxy.Stats, error) {
	if !p.isReady() {
		return nil, errStarting
	}
	l, err := p.serving()
	if err != nil {
		return nil, err
	}
	e, err := p.orderOn(l, proxyOrder{Stats: true}, nil, nil)
	if err == nil && e.Stats == nil {
		err = errors.New("BUG: the proxy gave no numbers")
	}
	return e.Stats, err
}

// serving gives the proxy that serves, once one does.
func (p *proxyClient) serving() (*proxyLife, error) {
	late := time.NewTimer(orderLimit)
	defer late.Stop()
	for {
		p.mu.Lock()
		l, back, over := p.now, p.back, p.over
		p.mu.Unlock()
		if l != nil {
			return l, nil
		}
		if over {
			return nil, errOver
		}
		select {
		case <-back:
		case <-p.quit:
			return nil, errOver
		case <-late.C:
			return nil, errAway
		}
	}
}

// orderOn has this proxy do something. force is in force once it is done.
func (p *proxyClient) orderOn(l *proxyLife, o proxyOrder, files []*os.File, force *inForce) (e proxyEvent, err error) {
	answer := make(chan proxyEvent, 1)
	p.mu.Lock()
	p.seq++
	o.Seq = p.seq
	p.pending[o.Seq] = pendingOrder{answer, force}
	p.mu.Unlock()
	settled := make(chan struct{})
	defer close(settled)
	go l.condemnLate(settled)
	sendErr := l.send(o, files...)
	if sendErr == nil {
		select {
		case e := <-answer:
			return outcome(e)
		case <-l.ended:
		}
	}
	// Whatever it answered is delivered by now; what it did not, never will be.
	p.mu.Lock()
	delete(p.pending, o.Seq)
	p.mu.Unlock()
	select {
	case e := <-answer:
		return outcome(e)
	default:
	}
	if sendErr != nil {
		return e, fmt.Errorf("instruct the proxy: %w", sendErr)
	}
	return e, errUnanswered
}

// condemnLate kills the proxy when an order is not settled in time.
func (l *proxyLife) condemnLate(settled <-chan struct{}) {
	for _, limit := range []time.Duration{orderLimit, lateGrace} {
		select {
		case <-settled:
			return
		case <-time.After(limit):
		}
	}
	l.condemn(fmt.Errorf("it did not carry out an order within %v", orderLimit))
}

func outcome(e proxyEvent) (proxyEvent, error) {
	if e.Error != "" {
		return e, errors.New(e.Error)
	}
	return e, nil
}
