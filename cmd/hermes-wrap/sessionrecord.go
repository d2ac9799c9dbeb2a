package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hermes-wrap/hermes-wrap/sandbox"
	"github.com/hermes-wrap/hermes-wrap/session"
)

// takeSession takes the run's name and writes that it began.
func (l *launch) takeSession() error {
	stateHome := l.who.stateHome()
	s, err := session.Take(stateHome, l.prep.name)
	var busy *session.BusyError
	if errors.As(err, &busy) {
		return &sandbox.StepError{Step: sandbox.StepPreflight, Err: err, Hint: fmt.Sprintf("give this run another --name, or end that one: hermes-wrap stop %s", busy.Name)}
	}
	if err != nil {
		return err
	}
	l.session = s
	// What is left of old sessions is no reason not to run.
	if err := session.Tidy(stateHome); err != nil {
		l.voice.warn(err.Error())
	}
	p := l.prep.policy
	l.entry = session.Record{
		Run: l.dir.Id, Pid: os.Getpid(), Command: filepath.Base(l.prep.plan.Argv[0]), Policy: p.Name, Digest: p.Digest, Version: version(),
		Workspace: p.Workspace.Path.Abs, RunDir: l.dir.Path, Audit: p.Audit.File.Abs, Started: l.began.UTC(),
	}
	return s.Write(l.entry)
}

// update changes the record and writes it.
func (l *launch) update(change func(*session.Record)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.entry)
	return l.session.Write(l.entry)
}

// endSession writes how the run ended, and lets the name go.
func (l *launch) endSession(code int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry.Ended, l.entry.Paused = time.Now().UTC(), false
	if err != nil {
		code, l.entry.Reason = codeOf(err), firstProblem(err)
	}
	l.entry.ExitCode = &code
	if err := errors.Join(l.session.Write(l.entry), l.session.Close()); err != nil {
		l.voice.warn(err.Error())
	}
}
