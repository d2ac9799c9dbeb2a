// Package secret reads secrets where they are kept: in the launcher's
// environment, in a file of their own or one of variables, from a command, in the desktop's keyring or among the
// credentials of a systemd service. It runs in the launcher alone. No error
// holds a secret or a part of one.
package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// The bounds of a secret. Private keys and tokens of identity providers are the
// longest that occur.
const (
	minLength = 8
	maxLength = 16 << 10
)

// Reader reads secrets. The zero value reads an empty environment.
type Reader struct {
	// Environ is the launcher's environment.
	Environ []string
	// Changeable tells whether what a path leads to can be changed from inside of
	// the sandbox. It is asked at each reading: what was not there at the launch
	// may have come since. Nil: nothing can.
	Changeable func(path string) bool
}

// changeable asks Changeable.
func (r Reader) changeable(path string) bool { return r.Changeable != nil && r.Changeable(path) }

// Read gets one secret and checks that it can be one. An error that is
// fs.ErrNotExist says that its variable is not set or its file is not there.
func (r Reader) Read(ctx context.Context, s policy.CredentialSource) (string, error) {
	value, err := r.fetch(ctx, s)
	if err != nil {
		return "", err
	}
	if err := Check(value); err != nil {
		return "", fmt.Errorf("read %s: %w", Describe(s), err)
	}
	return value, nil
}

func (r Reader) fetch(ctx context.Context, s policy.CredentialSource) (string, error) {
	if n := sources(s); n != 1 {
		return "", fmt.Errorf("read secret: %d sources are named, not one", n)
	}
	switch {
	case s.Env != "":
		return r.fromEnv(s)
	case s.File != policy.Path{}:
		return r.fromFile(s.File.Abs, s.Key)
	case len(s.Command) > 0:
		return r.fromCommand(ctx, s.Command)
	case s.Keyring != "":
		return r.fromKeyring(ctx, s.Keyring)
	}
	return r.fromSystemd(s.Systemd)
}

func sources(s policy.CredentialSource) int {
	n := 0
	for _, named := range []bool{s.Env != "", s.File != policy.Path{}, len(s.Command) > 0, s.Keyring != "", s.Systemd != ""} {
		if named {
			n++
		}
	}
	return n
}

// Describe names a source, without what it holds. Of a command only the
// program shows: an argument may be a secret itself.
func Describe(s policy.CredentialSource) string {
	switch {
	case s.Env != "" && s.Dotenv != policy.Path{}:
		return fmt.Sprintf("variable %q, set or in %q,", s.Env, s.Dotenv.Abs)
	case s.Env != "":
		return fmt.Sprintf("variable %q", s.Env)
	case s.Key != "":
		return fmt.Sprintf("entry %q of file %q", s.Key, s.File.Abs)
	case s.File != policy.Path{}:
		return fmt.Sprintf("file %q", s.File.Abs)
	case len(s.Command) > 0:
		return fmt.Sprintf("command %q", s.Command[0])
	case s.Keyring != "":
		return fmt.Sprintf("keyring entry %q", s.Keyring)
	case s.Systemd != "":
		return fmt.Sprintf("systemd credential %q", s.Systemd)
	}
	return "secret"
}

// Check refuses what cannot be a secret that is put into a request: it could
// end a header field, or be found by chance in harmless text.
func Check(value string) error {
	switch {
	case value == "":
		return errors.New("the secret is empty")
	case len(value) < minLength:
		return fmt.Errorf("the secret is shorter than %d characters", minLength)
	case len(value) > maxLength:
		return fmt.Errorf("the secret is longer than %d characters", maxLength)
	case strings.TrimSpace(value) != value:
		return errors.New("the secret begins or ends with a space or a line end")
	}
	for _, c := range []byte(value) {
		switch {
		case c < ' ' || c == 0x7f:
			return errors.New("the secret holds a control character")
		case c > 0x7f:
			return errors.New("the secret holds a character that is not ASCII")
		}
	}
	return nil
}

// fromEnv reads a variable of the environment or, where that does not have it,
// of the source's dotenv file.
func (r Reader) fromEnv(s policy.CredentialSource) (string, error) {
	value, ok := r.lookup(s.Env)
	switch {
	case ok && value != "":
		return value, nil
	case s.Dotenv != policy.Path{}:
		return r.fromDotenv(s.Dotenv.Abs, s.Env)
	case ok:
		return "", unset{s.Env, "empty"}
	}
	return "", unset{s.Env, "not set"}
}

// unset is the error for a variable that holds nothing.
type unset struct{ name, state string }

func (u unset) Error() string { return fmt.Sprintf("read variable %q: it is %s", u.name, u.state) }

// Is makes it one of fs.ErrNotExist.
func (u unset) Is(target error) bool { return target == fs.ErrNotExist }

// lookup gives a variable as getenv(3) does: the first one counts.
func (r Reader) lookup(name string) (string, bool) {
	i := slices.IndexFunc(r.Environ, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	if i < 0 {
		return "", false
	}
	return r.Environ[i][len(name)+1:], true
}
