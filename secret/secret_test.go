package secret

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

const value = "sk-ant-api03-T0psecretValue"

func write(t *testing.T, mode os.FileMode, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func file(path string) policy.CredentialSource {
	return policy.CredentialSource{File: policy.Path{Text: path, Abs: path}}
}

func TestRead(t *testing.T) {
	keyring.MockInit()
	if err := keyring.Set("svc/with/slash", "me", value); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(value+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := Reader{Environ: []string{"TOKEN=" + value, "TOKEN=second-value", "DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent", "PATH=/usr/bin:/bin", "CREDENTIALS_DIRECTORY=" + dir}}
	for name, source := range map[string]policy.CredentialSource{
		"env":                    {Env: "TOKEN"},
		"file":                   file(write(t, 0o600, value)),
		"file with a line end":   file(write(t, 0o400, value+"\n")),
		"file with a CRLF":       file(write(t, 0o600, value+"\r\n")),
		"command":                {Command: []string{"printf", "%s\\n", value}},
		"command by its path":    {Command: []string{"/bin/echo", value}},
		"keyring":                {Keyring: "svc/with/slash/me"},
		"systemd":                {Systemd: "token"},
		"command outside of cwd": {Command: []string{"sh", "-c", `test "$(pwd)" = / && printf %s ` + value}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Read(context.Background(), source)
			if err != nil || got != value {
				t.Errorf("got %q, %v, want %q", got, err, value)
			}
		})
	}
}

// TestReadRefuses also holds that no error shows what was read.
func TestReadRefuses(t *testing.T) {
	keyring.MockInit()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	const marker = "T0psecret"
	r := Reader{Environ: []string{
		"DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent",
		"CR=" + marker + "\r", "LF=" + marker + "\nX: y", "NUL=" + marker + "\x00", "ESC=" + marker + "\x1b[0m", "DEL=" + marker + "\x7f",
		"EMPTY=", "SHORT=T0psec", "SPACE=" + marker + " ", "WIDE=" + marker + "é", "LONG=" + strings.Repeat(marker, 4000), "PATH=.:/usr/bin:/bin",
		"CREDENTIALS_DIRECTORY=" + t.TempDir(),
	}}
	for name, c := range map[string]struct {
		source policy.CredentialSource
		want   string
	}{
		"CR":                       {policy.CredentialSource{Env: "CR"}, "line end"},
		"LF":                       {policy.CredentialSource{Env: "LF"}, "control character"},
		"NUL":                      {policy.CredentialSource{Env: "NUL"}, "control character"},
		"ESC":                      {policy.CredentialSource{Env: "ESC"}, "control character"},
		"DEL":                      {policy.CredentialSource{Env: "DEL"}, "control character"},
		"empty":                    {policy.CredentialSource{Env: "EMPTY"}, "empty"},
		"short":                    {policy.CredentialSource{Env: "SHORT"}, "shorter"},
		"space":                    {policy.CredentialSource{Env: "SPACE"}, "space"},
		"not ASCII":                {policy.CredentialSource{Env: "WIDE"}, "not ASCII"},
		"long":                     {policy.CredentialSource{Env: "LONG"}, "longer"},
		"unset":                    {policy.CredentialSource{Env: "UNSET"}, "not set"},
		"two line ends":            {file(write(t, 0o600, marker+"\n\n")), "line end"},
		"missing file":             {file("/nonexistent/secret"), "no such file"},
		"group can read":           {file(asUser(t, write(t, 0o640, value))), "chmod"},
		"everybody can read":       {file(write(t, 0o644, value)), "chmod"},
		"fifo":                     {file(fifo), "not a regular file"},
		"directory":                {file(t.TempDir()), "not a regular file"},
		"command fails":            {policy.CredentialSource{Command: []string{"sh", "-c", "echo " + value + "; echo " + value + " >&2; exit 3"}}, "exit status 3"},
		"command prints too much":  {policy.CredentialSource{Command: []string{"yes", marker}}, "printed more"},
		"command prints nothing":   {policy.CredentialSource{Command: []string{"true", marker}}, "empty"},
		"command is missing":       {policy.CredentialSource{Command: []string{"no-such-program", marker}}, "not in PATH"},
		"command is relative":      {policy.CredentialSource{Command: []string{"./secret.go", marker}}, "absolute path"},
		"keyring without the user": {policy.CredentialSource{Keyring: "svc"}, "not SERVICE/USER"},
		"keyring without entry":    {policy.CredentialSource{Keyring: "svc/nobody"}, "there is none"},
		"systemd escapes":          {policy.CredentialSource{Systemd: "../token"}, "not the name"},
		"no source":                {policy.CredentialSource{}, "0 sources"},
		"two sources":              {policy.CredentialSource{Env: "TOKEN", Systemd: "token"}, "2 sources"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Read(context.Background(), c.source)
			if err == nil || got != "" || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %q, %v, want an error about %q", got, err, c.want)
			}
			if strings.Contains(err.Error(), "T0psec") {
				t.Errorf("got %q, want no part of the secret", err)
			}
		})
	}
}

// asUser gives a file to another user than root where the test runs as root:
// a file of root's may be open to a group.
func asUser(t *testing.T, path string) string {
	t.Helper()
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestCommandGetsFewVariables(t *testing.T) {
	r := Reader{Environ: []string{"PATH=/usr/bin:/bin", "HOME=/home/me", "AWS_SECRET_ACCESS_KEY=" + value, "LD_PRELOAD=/tmp/x.so"}}
	got, err := r.Read(context.Background(), policy.CredentialSource{Command: []string{"sh", "-c", `printf '%s,' $(env | cut -d= -f1 | sort)`}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got, "AWS") || strings.Contains(got, "LD_") || !strings.Contains(got, "HOME,") {
		t.Errorf("got %q, want HOME and PATH and no secret", got)
	}
}

func TestCommandEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := Reader{Environ: []string{"PATH=/usr/bin:/bin"}}.Read(ctx, policy.CredentialSource{Command: []string{"sleep", "600"}})
	if err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("got %v after %v, want an error soon", err, time.Since(began))
	}
}

func TestKeyringWithoutSession(t *testing.T) {
	keyring.MockInit()
	_, err := Reader{}.Read(context.Background(), policy.CredentialSource{Keyring: "svc/me"})
	if err == nil || !strings.Contains(err.Error(), "no session bus") {
		t.Errorf("got %v, want an error about the session bus", err)
	}
}
