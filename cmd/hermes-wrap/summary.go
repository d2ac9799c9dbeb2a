package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
)

// summary is what --summary writes when a run has ended.
type summary struct {
	Version string `json:"version"` // of hermes-wrap
	Run     string `json:"run,omitempty"`
	Name    string `json:"name,omitempty"` // of the session
	Policy  string `json:"policy,omitempty"`
	Digest  string `json:"digest,omitempty"`
	Command string `json:"command"`

	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"`
	ExitCode int       `json:"exit_code"`
	// Reason says why hermes-wrap ended the run, or could not begin it.
	Reason string `json:"reason,omitempty"`
	// Degraded names the layers that were missing with the policy's consent.
	Degraded []string `json:"degraded"`
	// Network is nil when no proxy answered.
	Network *proxy.Stats `json:"network,omitempty"`
	// Denials are what was refused most often.
	Denials []deniedOften `json:"denials"`
}

// deniedOften is one kind of refusal.
type deniedOften struct {
	Count  int    `json:"count"`
	Kind   string `json:"kind"`
	Host   string `json:"host,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
}

// maxDenials is how many kinds of refusals a summary lists.
const maxDenials = 50

// summaryFile is the file of --summary: nothing until the end, then the whole.
type summaryFile struct {
	path string
	temp *os.File
}

// openSummary makes sure that the file can be written before anything is run. The
// agent must not reach it: what it says is about the agent.
func openSummary(path string) (*summaryFile, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".summary-*")
	if err != nil {
		return nil, fmt.Errorf("open the summary: %w", err)
	}
	return &summaryFile{path, f}, nil
}

// apart refuses a place that the sandbox shows.
func (s *summaryFile) apart(l *launch) error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	for _, g := range l.prep.policy.Granted() {
		for _, granted := range []string{g.Abs, resolvedOr(g.Abs)} {
			if !g.Glob && below(filepath.Join(dir, filepath.Base(s.path)), granted) {
				return &hintedError{fmt.Errorf("the summary %q lies in %q, which the sandbox shows", s.path, g.Text), "write it elsewhere, and copy it afterwards"}
			}
		}
	}
	return nil
}

func resolvedOr(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// write puts the summary in its place.
func (s *summaryFile) write(v summary) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = s.temp.Write(append(b, '\n'))
	if err = errors.Join(err, s.temp.Chmod(0o644), s.temp.Close()); err != nil {
		return err
	}
	return os.Rename(s.temp.Name(), s.path)
}

// drop removes what is not a summary yet.
func (s *summaryFile) drop() {
	_ = s.temp.Close()
	_ = os.Remove(s.temp.Name())
}

// summarize writes the summary of a run that ended with code, or with err.
func (l *launch) summarize(argv []string, code int, err error) error {
	v := summary{
		Version: version(), Command: filepath.Base(argv[0]), Name: l.prep.name, Policy: l.prep.policy.Name, Digest: l.prep.policy.Digest,
		Started: l.began.UTC(), Seconds: time.Since(l.began).Seconds(), ExitCode: code, Reason: l.reason,
		Degraded: []string{}, Network: l.numbers, Denials: []deniedOften{},
	}
	if err != nil {
		v.ExitCode, v.Reason = codeOf(err), err.Error()
	}
	for _, d := range l.prep.plan.Degraded {
		v.Degraded = append(v.Degraded, string(d.Layer))
	}
	if l.log != nil {
		v.Run = l.dir.Id
		if v.Denials, err = l.denials(); err != nil {
			return fmt.Errorf("read the record for the summary: %w", err)
		}
	}
	return l.summary.write(v)
}

// denials counts the run's refusals in its record.
func (l *launch) denials() ([]deniedOften, error) {
	path := l.prep.policy.Audit.File.Abs
	files, err := audit.Files(path)
	if err != nil {
		return nil, err
	}
	// A run that fills more than two files has its rarest refusals elsewhere.
	tail := audit.NewTail(path, files[max(0, len(files)-2):])
	defer func() { _ = tail.Close() }()
	counts := map[deniedOften]int{}
	for {
		line, err := tail.Next()
		if errors.Is(err, io.EOF) || err == nil && line == nil {
			break
		}
		if err != nil {
			return nil, err
		}
		e, err := audit.Decode(line)
		if err != nil || e.Run != l.dir.Id || e.Verdict != audit.Deny {
			continue
		}
		kind := deniedOften{Kind: string(e.Kind), Host: e.Host, Rule: e.Rule, Reason: e.Reason}
		if _, known := counts[kind]; known || len(counts) < 10_000 {
			counts[kind]++
		}
	}
	out := []deniedOften{}
	for kind, n := range counts {
		kind.Count = n
		out = append(out, kind)
	}
	slices.SortFunc(out, func(a, b deniedOften) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Reason, b.Reason))
	})
	return out[:min(len(out), maxDenials)], nil
}
