package session

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The lock goes with the launcher. After a SIGKILL of it the sandbox needs a
// moment to end, and until then it may have files of the session mounted. So a
// run notes its init here, and the next one waits for that process.

const holderName = "holder"

// How long Take waits for the sandbox of a run whose launcher was killed.
const (
	holderLimit = 10 * time.Second
	holderPause = 5 * time.Millisecond
)

// Hold notes a process that has files of the session in use, and may have them
// after our own end.
func (s *Session) Hold(pid int) error {
	h, err := identify(pid)
	if err != nil {
		return fmt.Errorf("note the holder of session %q: %w", s.Name, err)
	}
	return os.WriteFile(filepath.Join(s.Path, holderName), []byte(h+"\n"), 0o600)
}

// release forgets the process; the caller knows that it is gone.
func (s *Session) release() {
	_ = os.Remove(filepath.Join(s.Path, holderName))
}

// waitHolder waits until the process of an earlier run is gone. One that does
// not go is a run that is still under way.
func waitHolder(dir, name string) error {
	path := filepath.Join(dir, holderName)
	text, err := readSmall(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for end := time.Now().Add(holderLimit); held(string(bytes.TrimSpace(text))); time.Sleep(holderPause) {
		if time.Now().After(end) {
			return &BusyError{name}
		}
	}
	return os.Remove(path)
}

// held tells whether a process that was identified is still there.
func held(text string) bool {
	word, _, _ := strings.Cut(text, " ")
	pid, err := strconv.Atoi(word)
	if err != nil {
		return false
	}
	now, err := identify(pid)
	return err == nil && now == text
}

var errEnded = errors.New("the process has ended")

// identify names a process for good: its id, when it started, and in which boot.
func identify(pid int) (string, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return "", err
	}
	// The name in parentheses may hold anything; state and start time come after.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, start = 0, 19
	if len(fields) <= start {
		return "", fmt.Errorf("read %s/stat: too short", dir)
	}
	if tasks, err := os.ReadDir(filepath.Join(dir, "task")); fields[state] == "X" || fields[state] == "Z" && err == nil && len(tasks) <= 1 {
		return "", errEnded // nobody has waited for it yet
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strconv.Itoa(pid) + " " + fields[start] + " " + strings.TrimSpace(string(boot)), nil
}
