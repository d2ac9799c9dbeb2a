package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/policy"
	"github.com/hermes-wrap/hermes-wrap/sandbox"
)

// The writers of a run's record.
const (
	launcherWriter = "launcher"
	proxyWriter    = "proxy"
)

// What the policy's zero values stand for.
const (
	auditMaxSize = 64 << 20
	auditKeep    = 8
)

// auditKey is where the key of the records lies: with our own state, outside of
// every sandbox, wherever the records are.
func (c caller) auditKey() string { return filepath.Join(c.stateDir(), "audit.key") }

// auditRuns is where the runs of the record at path are counted, beside the key:
// a run that was removed from the record is missed by its number.
func (c caller) auditRuns(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(c.stateDir(), "audit-runs", hex.EncodeToString(sum[:8]))
}

// openAudit opens the record and begins the launcher's chain in it.
func (l *launch) openAudit() error {
	path := l.prep.policy.Audit.File.Abs
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the directory of the audit file: %w", err)
	}
	key, err := audit.MakeKey(l.who.auditKey())
	if no := unix.Errno(0); err != nil && !errors.As(err, &no) {
		return &sandbox.StepError{
			Step: sandbox.StepRuntime, Err: err,
			Hint: "see what happened to it, and move it away: the next launch makes another, and what it vouched for can be verified no more",
		}
	}
	if err != nil {
		return err
	}
	if l.log, err = audit.Open(path, l.dir.Id); err != nil {
		return err
	}
	l.log.Version = version()
	l.writerKey = func(writer string) audit.ChainKey { return key.ForWriter(l.dir.Id, writer) }
	return audit.NumberRun(l.who.auditRuns(path), func(number int64) error {
		l.log.Number = number
		return l.log.Sign(launcherWriter, l.writerKey(launcherWriter))
	})
}

// closeAudit has the proxy end its chain and ends the launcher's own, which
// names the proxy's. Where a record is required, an end that could not be
// written is a failure. It may be called more than once.
func (l *launch) closeAudit() error {
	var others []string
	if l.proxy != nil {
		l.proxy.close()
		others = l.proxy.writers()
	}
	if err := l.log.Close(others...); err != nil && l.prep.policy.Audit.Required {
		return err
	}
	return nil
}

// rotateEvery is how often the launcher looks at the record's size. The file
// can pass its limit by what is written in between.
const rotateEvery = time.Second

// rotate keeps the record to its size until the proxy is gone. The proxy may
// open nothing, so it is handed each new file.
func (l *launch) rotate(px *proxyClient) {
	select {
	case <-px.ready: // before that it could not be handed another file
	case <-px.gone:
		return
	}
	path, most, keep := rotation(l.prep.policy.Audit)
	tick := time.NewTicker(rotateEvery)
	defer tick.Stop()
	said := false
	for {
		select {
		case <-px.gone:
			return
		case <-tick.C:
		}
		f, err := l.log.Rotate(path, most, keep)
		if f != nil {
			_, swapErr := px.order(proxyOrder{Audit: true}, []*os.File{f})
			err = errors.Join(err, swapErr)
		}
		if err != nil && !said {
			said = true
			l.voice.warn(err.Error())
		}
	}
}

func rotation(a policy.Audit) (path string, most int64, keep int) {
	path, most, keep = a.File.Abs, int64(a.MaxSize), a.Keep
	if most == 0 {
		most = auditMaxSize
	}
	if keep == 0 {
		keep = auditKeep
	}
	return path, most, keep
}

// proxyRecord is the record as the proxy writes it, with a chain of its own.
// written is told the number of each line.
func proxyRecord(f *os.File, setup proxySetup, written func(uint64)) (*audit.Log, error) {
	log, err := audit.New(f, setup.Run)
	if err != nil {
		return nil, err
	}
	log.Version, log.Written = version(), written
	return log, log.Sign(setup.Writer, setup.AuditKey)
}

// takeRecord goes on in another file.
func takeRecord(log *audit.Log, files []*os.File) error {
	if len(files) != 1 {
		closeFiles(files)
		return errors.New("BUG: the launcher sent no audit file")
	}
	err := log.Swap(files[0])
	if err != nil {
		closeFiles(files)
	}
	return err
}

// endLimit bounds how long what is still being dialled may hold up the end of
// the proxy's record, and with it the end of the run. Nobody inside waits for it.
const endLimit = 250 * time.Millisecond

// endService closes the server and then the record, so that the end of the
// chain is its last line.
func endService(s *proxy.Server) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.Close()
	}()
	select {
	case <-closed:
	case <-time.After(endLimit):
	}
	_ = s.Audit.Close()
}
