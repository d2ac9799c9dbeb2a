package secret

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zalando/go-keyring"
)

// keyringTime bounds a request to the keyring, which may ask to be unlocked.
const keyringTime = 60 * time.Second

// fromKeyring asks the Secret Service for "SERVICE/USER". The user is what
// follows the last slash.
func (r Reader) fromKeyring(ctx context.Context, entry string) (string, error) {
	at := strings.LastIndexByte(entry, '/')
	if at <= 0 || at == len(entry)-1 {
		return "", fmt.Errorf("read keyring entry %q: it is not SERVICE/USER", entry)
	}
	if !r.hasSession() {
		return "", fmt.Errorf("read keyring entry %q: there is no session bus: start hermes-wrap in the desktop's session", entry)
	}
	type answer struct {
		value string
		err   error
	}
	// The library knows no deadline; a keyring that never answers costs one
	// goroutine until the launch has failed.
	got := make(chan answer, 1)
	go func() {
		v, err := keyring.Get(entry[:at], entry[at+1:])
		got <- answer{v, err}
	}()
	select {
	case a := <-got:
		if errors.Is(a.err, keyring.ErrNotFound) {
			return "", fmt.Errorf("read keyring entry %q: there is none", entry)
		}
		if a.err != nil {
			return "", fmt.Errorf("read keyring entry %q: %w", entry, a.err)
		}
		return a.value, nil
	case <-time.After(keyringTime):
		return "", fmt.Errorf("read keyring entry %q: the keyring did not answer within %v", entry, keyringTime)
	case <-ctx.Done():
		return "", fmt.Errorf("read keyring entry %q: %w", entry, ctx.Err())
	}
}

// hasSession keeps the library from starting a bus of its own, which would stay.
func (r Reader) hasSession() bool {
	if address, ok := r.lookup("DBUS_SESSION_BUS_ADDRESS"); ok && address != "" {
		return true
	}
	dir, _ := r.lookup("XDG_RUNTIME_DIR")
	_, err := os.Stat(filepath.Join(dir, "bus"))
	return filepath.IsAbs(dir) && err == nil
}
