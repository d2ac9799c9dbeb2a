package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// controlled answers the requests of the control socket.
func (r *reloader) controlled(q controlRequest) controlAnswer {
	a := controlAnswer{Run: r.launch.dir.Id}
	switch q.Op {
	case opReload:
		out, err := r.reload()
		a.Reload = &out
		a.failed(err)
	case opStatus:
		a.Status = r.status()
	default:
		a.Error = "unknown operation; one of reload, status"
	}
	return a
}

// failed fills in what went wrong, if anything did.
func (a *controlAnswer) failed(err error) {
	if err == nil {
		return
	}
	a.Error, a.Reload = shortened(err.Error()), nil
	var static *staticError
	if errors.As(err, &static) {
		a.Static = static.keys
	}
	var problem policy.Problem
	switch {
	case errors.As(err, &a.Problems):
		a.Error = "the policy has mistakes, and the old one stays in force"
	case errors.As(err, &problem):
		a.Problems = policy.Problems{problem}
	}
	a.Problems = a.Problems[:min(len(a.Problems), controlProblems)]
}

func (r *reloader) status() *runStatus {
	p := r.inForce().policy
	return &runStatus{
		Pid: os.Getpid(), Command: filepath.Base(r.base), Policy: p.Name, Digest: p.Digest,
		Version: version(), Started: r.launch.began.UTC(), Ready: r.px.isReady(),
	}
}
