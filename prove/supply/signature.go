package supply

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// signatures signs the packages with a key that is thrown away, and verifies them:
// as they are, and with one thing changed at a time.
func (r *run) signatures(ctx context.Context) (string, error) {
	dir := filepath.Join(r.o.Work, "signed")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for name, text := range map[string]string{"hermes-wrap_1.0.0_amd64.deb": "a package\n", "hermes-wrap-1.0.0.tar.gz": "another\n", "hermes-wrap.cdx.json": "{}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	keys, err := r.makeKeys(ctx)
	if err != nil {
		return "", err
	}
	if _, err := output(r.command(ctx, "packaging/sign", dir, keys.ours)); err != nil {
		return "", err
	}
	verify := func(signers string, files ...string) error {
		_, err := output(r.command(ctx, "packaging/verify", append([]string{dir, signers}, files...)...))
		return err
	}
	if err := verify(keys.signers); err != nil {
		return "", fmt.Errorf("what was just signed: %w", err)
	}
	if err := verify(keys.signers, "hermes-wrap.cdx.json"); err != nil {
		return "", fmt.Errorf("one file of what was just signed: %w", err)
	}
	tampered := r.tamperings(ctx, dir, keys)
	for _, t := range tampered {
		undo, err := keep(dir)
		if err != nil {
			return "", err
		}
		if err := t.do(); err != nil {
			return "", fmt.Errorf("%s: %w", t.name, err)
		}
		err = verify(keys.signers, t.files...)
		if err == nil {
			return "", fmt.Errorf("%s: it was verified all the same", t.name)
		}
		if !strings.Contains(err.Error(), t.want) {
			return "", fmt.Errorf("%s: got %w, want %q", t.name, err, t.want)
		}
		if err := undo(); err != nil {
			return "", err
		}
	}
	if err := verify(keys.signers); err != nil {
		return "", fmt.Errorf("with everything put back: %w", err)
	}
	return fmt.Sprintf("signed and verified; %d changes of files, list, signature and key were each refused", len(tampered)), nil
}

// keys are thrown away with the directory of the part.
type keys struct{ ours, theirs, signers string }

func (r *run) makeKeys(ctx context.Context) (k keys, err error) {
	dir := filepath.Join(r.o.Work, "keys")
	if err := os.RemoveAll(dir); err != nil {
		return k, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return k, err
	}
	k = keys{filepath.Join(dir, "ours"), filepath.Join(dir, "theirs"), filepath.Join(dir, "signers")}
	for _, key := range []string{k.ours, k.theirs} {
		if _, err := output(r.command(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key)); err != nil {
			return k, err
		}
	}
	public, err := os.ReadFile(k.ours + ".pub")
	if err != nil {
		return k, err
	}
	return k, os.WriteFile(k.signers, append([]byte("hermes-wrap-release "), public...), 0o644)
}

// tampering is one change, and what must be said of it.
type tampering struct {
	name  string
	files []string
	do    func() error
	want  string
}

func (r *run) tamperings(ctx context.Context, dir string, k keys) []tampering {
	at := func(name string) string { return filepath.Join(dir, name) }
	edit := func(name, old, text string) func() error {
		return func() error {
			b, err := os.ReadFile(at(name))
			if err != nil {
				return err
			}
			if !strings.Contains(string(b), old) {
				return fmt.Errorf("%s does not hold %q", name, old)
			}
			return os.WriteFile(at(name), []byte(strings.Replace(string(b), old, text, 1)), 0o644)
		}
	}
	sign := func(key, namespace string) func() error {
		return func() error {
			if err := os.Remove(at("SHA256SUMS.sig")); err != nil {
				return err
			}
			_, err := output(r.command(ctx, "ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", namespace, at("SHA256SUMS")))
			return err
		}
	}
	remove := func(name string) func() error { return func() error { return os.Remove(at(name)) } }
	return []tampering{
		{"a changed byte", nil, edit("hermes-wrap_1.0.0_amd64.deb", "package", "Package"), "missing or was changed"},
		{"a changed byte of one file", []string{"hermes-wrap_1.0.0_amd64.deb"}, edit("hermes-wrap_1.0.0_amd64.deb", "package", "Package"), "missing or was changed"},
		{"a missing file", nil, remove("hermes-wrap.cdx.json"), "missing or was changed"},
		{"a file more", nil, func() error { return os.WriteFile(at("extra.deb"), nil, 0o644) }, "is not named"},
		{"a file that was never signed", []string{"other.deb"}, func() error { return os.WriteFile(at("other.deb"), nil, 0o644) }, "is not named"},
		{"a changed list", nil, edit("SHA256SUMS", "a", "b"), "was not signed by"},
		{"a line less in the list", nil, func() error { return os.WriteFile(at("SHA256SUMS"), nil, 0o644) }, "is missing"},
		{"no signature", nil, remove("SHA256SUMS.sig"), "is missing"},
		{"a changed signature", nil, edit("SHA256SUMS.sig", "\n", "\nAAAA"), "was not signed by"},
		{"another key", nil, sign(k.theirs, "hermes-wrap-release"), "was not signed by"},
		{"a signature for another purpose", nil, sign(k.ours, "file"), "was not signed by"},
		{"a list that leads out of the directory", nil, func() error {
			if err := os.WriteFile(at("SHA256SUMS"), []byte(strings.Repeat("0", 64)+"  ../keys/signers\n"), 0o644); err != nil {
				return err
			}
			return sign(k.ours, "hermes-wrap-release")()
		}, "a line of another form"},
	}
}

// keep remembers the files of a directory, and gives what puts them back.
func keep(dir string) (undo func() error, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, e := range entries {
		if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return func() error {
		now, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range now {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		for name, b := range all {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
