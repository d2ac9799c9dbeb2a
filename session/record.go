package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Record is what is written about a run. It is the launcher's own word: nothing
// inside can reach it, and nothing is decided by it.
type Record struct {
	// Name is the session's, Run the run's identifier.
	Name string `json:"name"`
	Run  string `json:"run"`
	// Pid is the launcher's process.
	Pid int `json:"pid"`
	// Command is the program's name without its directory and arguments, which
	// may hold secrets.
	Command string `json:"command"`
	Policy  string `json:"policy"`
	// Digest is that of the policy at launch.
	Digest    string `json:"digest"`
	Version   string `json:"version"`
	Workspace string `json:"workspace,omitempty"`
	// RunDir is where the control socket lies while the run lasts.
	RunDir string `json:"run_dir"`
	// Audit is the file with the record of its decisions.
	Audit string `json:"audit,omitempty"`
	// Log is where its output is kept; "" when it is not.
	Log string `json:"log,omitempty"`
	// Detached tells that it runs without a caller, Terminal that it then has a
	// terminal of its own, Paused that it was paused.
	Detached bool `json:"detached,omitempty"`
	Terminal bool `json:"terminal,omitempty"`
	Paused   bool `json:"paused,omitempty"`
	// Started is when the run began. Ended is zero while it lasts, and for good
	// when the launcher was killed.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	// ExitCode is the run's, once it ended; Reason why it was ended, if it was.
	ExitCode *int   `json:"exit_code,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// maxRecord is more than any record has.
const maxRecord = 1 << 20

// Write replaces the record in one step: a reader sees the old one or the new.
func (s *Session) Write(r Record) error {
	r.Name = s.Name
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(s.Path, recordName)
	// One name, so that killed launchers do not leave more and more behind. Only
	// who holds the session writes, and one at a time.
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write the record of session %q: %w", s.Name, err)
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write the record of session %q: %w", s.Name, err)
	}
	return nil
}

// read gives the record in a directory.
func read(dir string) (r Record, err error) {
	text, err := readSmall(filepath.Join(dir, recordName))
	if err != nil {
		return r, err
	}
	err = json.NewDecoder(bytes.NewReader(text)).Decode(&r)
	return r, err
}

// readSmall reads a file of ours. What stands in its place instead, a FIFO for
// one, must hold nobody up.
func readSmall(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxRecord {
		return nil, errors.Join(err, errors.New("it is no record"))
	}
	return io.ReadAll(io.LimitReader(f, maxRecord))
}
