package kernels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// builder makes what the guests boot, below dir.
type builder struct {
	o   report.Options
	dir string
}

// script runs prove/kernels/build and gives its lines.
func (b builder) script(ctx context.Context, what string, args ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.o.Root, "prove", "kernels", "build"), append([]string{what, b.dir}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("prove/kernels/build %s %s: %w: %s", what, strings.Join(args, " "), err, errs.String())
	}
	return strings.Fields(string(out)), nil
}

// kernels fetches the kernels of the suites. What is not served is left out.
func (b builder) kernel(ctx context.Context, suite string) (kernel, error) {
	k := kernel{Suite: suite, dir: filepath.Join(b.dir, "kernel-"+suite)}
	if _, err := b.script(ctx, "kernel", suite); err != nil {
		return k, err
	}
	release, err := os.ReadFile(filepath.Join(k.dir, "release"))
	k.release = strings.TrimSpace(string(release))
	return k, err
}

// version is the part of a release that features come with.
func (k kernel) version() string {
	var major, minor int
	_, _ = fmt.Sscanf(k.release, "%d.%d", &major, &minor)
	return fmt.Sprintf("%d.%d", major, minor)
}

// guest builds the program that runs inside.
func (b builder) guest(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(b.dir, "guest"), "./prove/kernels/guest")
	cmd.Dir = b.o.Root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the guest's program: %w: %s", err, out)
	}
	return nil
}

// input makes the disk with what is under test and what is to be done.
func (b builder) input(ctx context.Context, dir string, job protocol.Job) (string, error) {
	tree := filepath.Join(dir, "in")
	if err := errors.Join(os.RemoveAll(tree), os.MkdirAll(tree, 0o755)); err != nil {
		return "", err
	}
	j, err := json.Marshal(job)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(tree, "job.json"), j, 0o644); err != nil {
		return "", err
	}
	policies, err := filepath.Glob(filepath.Join(b.o.Root, "prove", "kernels", "policies", "*.yaml"))
	if err != nil {
		return "", err
	}
	for from, mode := range map[string]os.FileMode{b.o.Bin: 0o755, filepath.Join(b.dir, "guest"): 0o755} {
		if err := copyFile(from, filepath.Join(tree, filepath.Base(from)), mode); err != nil {
			return "", err
		}
	}
	profile := filepath.Join(b.o.Root, "packaging", "apparmor", "hermes-wrap")
	if err := copyFile(profile, filepath.Join(tree, "apparmor.profile"), 0o644); err != nil {
		return "", err
	}
	for _, p := range policies {
		if err := copyFile(p, filepath.Join(tree, filepath.Base(p)), 0o644); err != nil {
			return "", err
		}
	}
	if slices.ContainsFunc(job.Steps, func(a protocol.Ask) bool { return strings.Contains(a.Script, "/in/escapes") }) {
		if err := os.CopyFS(filepath.Join(tree, "escapes"), os.DirFS(filepath.Join(b.dir, "escapes"))); err != nil {
			return "", err
		}
	}
	image := filepath.Join(dir, "in.img")
	if _, err := b.script(ctx, "input", tree, image); err != nil {
		return "", err
	}
	return image, nil
}

func copyFile(from, to string, mode os.FileMode) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, b, mode); err != nil {
		return err
	}
	return os.Chmod(to, mode)
}
