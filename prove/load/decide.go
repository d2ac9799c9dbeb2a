package load

import (
	"fmt"
	"runtime"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// rulesOf is a network policy of n rules, a tenth as many denials among them.
func rulesOf(n int) (net policy.Network) {
	for i := range n {
		net.Rules = append(net.Rules, policy.Rule{
			Name: fmt.Sprint("rule", i), Host: fmt.Sprintf("host%d.example.org", i),
			Allow: []policy.Match{{Methods: []string{"GET"}, Paths: []string{"/v1/**"}}},
			Deny:  []policy.Match{{Paths: []string{"/**/admin/**"}}},
		})
		if i%10 == 0 {
			net.Deny = append(net.Deny, policy.HostRule{Host: fmt.Sprintf("**.bad%d.example.org", i)})
		}
	}
	return net
}

// decided is what a million decisions came to.
type decided struct {
	n, allowed, wrong int
	each              time.Duration
	grown             int64 // bytes of the heap
}

// decide asks n times, and knows what each answer must be.
func decide(n int) (d decided, err error) {
	const rules = 1000
	e, err := netpolicy.Compile(rulesOf(rules))
	if err != nil {
		return d, err
	}
	var hosts [rules]netpolicy.Host
	for i := range hosts {
		if hosts[i], err = netpolicy.ParseHost(fmt.Sprintf("host%d.example.org", i)); err != nil {
			return d, err
		}
	}
	bad, err := netpolicy.ParseHost("a.bad10.example.org")
	if err != nil {
		return d, err
	}
	requests := []struct {
		method, path string
		allow        bool
	}{{"GET", "/v1/a/b", true}, {"POST", "/v1/a", false}, {"GET", "/v1/admin/x", false}, {"GET", "/other", false}}
	before, began := heap(), time.Now()
	for i := range n {
		q := requests[i%len(requests)]
		r := netpolicy.Request{Host: hosts[i%rules], Port: 443, TLS: true, Method: q.method, Path: q.path}
		if i%97 == 0 {
			r.Host, q.allow = bad, false
		}
		allowed := e.Request(r).Verdict == netpolicy.Allow
		if allowed {
			d.allowed++
		}
		if allowed != q.allow {
			d.wrong++
		}
	}
	d.n, d.each, d.grown = n, time.Since(began)/time.Duration(n), heap()-before
	runtime.KeepAlive(e)
	return d, nil
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
