package audit

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Key is the secret that chains are made and verified with. It stays outside of
// every sandbox; a writer gets only what ForWriter gives.
type Key struct{ secret [sha256.Size]byte }

// ChainKey is the key of one writer's chain in one run. It makes no other chain.
type ChainKey []byte

// String keeps the key out of messages.
func (ChainKey) String() string { return hidden }

// ForWriter derives the key of a chain.
func (k Key) ForWriter(run, writer string) ChainKey {
	m := hmac.New(sha256.New, k.secret[:])
	_, _ = io.WriteString(m, "hermes-wrap audit chain 1\x00"+run+"\x00"+writer)
	return m.Sum(nil)
}

// MakeKey reads the key at path, or makes one with mode 0600 where there is
// none. Two that do so at once get the same key.
func MakeKey(path string) (Key, error) {
	k, err := ReadKey(path)
	if !errors.Is(err, os.ErrNotExist) {
		return k, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return Key{}, fmt.Errorf("make audit key %q: %w", path, err)
	}
	var fresh Key
	_, _ = rand.Read(fresh.secret[:]) // never fails (Go 1.24)
	// A link makes the whole file appear at once, and never replaces another.
	f, err := os.CreateTemp(filepath.Dir(path), ".audit-key-")
	if err != nil {
		return Key{}, fmt.Errorf("make audit key %q: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(hex.EncodeToString(fresh.secret[:]) + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return Key{}, fmt.Errorf("make audit key %q: %w", path, err)
	}
	return ReadKey(path)
}

// ReadKey reads a key. It refuses symbolic links, files of others, and files
// that others may read.
func ReadKey(path string) (Key, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return Key{}, &os.PathError{Op: "open audit key", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Key{}, &os.PathError{Op: "read audit key", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o077 != 0 || (int(st.Uid) != os.Geteuid() && st.Uid != 0) {
		return Key{}, fmt.Errorf("read audit key %q: it must be a file of yours with mode 0600", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return Key{}, fmt.Errorf("read audit key %q: %w", path, err)
	}
	var k Key
	if n, err := hex.Decode(k.secret[:], []byte(strings.TrimSpace(string(b)))[:min(len(strings.TrimSpace(string(b))), 2*sha256.Size)]); err != nil || n != sha256.Size || len(strings.TrimSpace(string(b))) != 2*sha256.Size {
		return Key{}, fmt.Errorf("read audit key %q: it holds no key", path)
	}
	return k, nil
}
