package fuzz

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// coverage measures how much of each package its own targets reach with the seeds
// and everything that was kept.
func coverage(ctx context.Context, o report.Options, packages []*pkg) (report.Table, []string) {
	table := report.Table{
		Title:   "How much of each package the inputs reach",
		Columns: []string{"Package", "Statements, by the seeds", "With what the fuzzer found"},
	}
	var failed []string
	for _, p := range packages {
		o.Say("fuzz: coverage of %s", p.rel)
		seeds, all, err := p.covered(ctx, o)
		if err != nil {
			failed = append(failed, fmt.Sprintf("coverage of %s: %v", p.rel, err))
			continue
		}
		table.Rows = append(table.Rows, []string{"`" + filepath.ToSlash(p.rel) + "`", seeds, all})
	}
	return table, failed
}

func (p *pkg) covered(ctx context.Context, o report.Options) (seeds, all string, err error) {
	if seeds, err = runCovered(ctx, p.bin, p.dir); err != nil {
		return "", "", err
	}
	dir, err := p.withCorpus(o, p.corpus(o))
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	all, err = runCovered(ctx, p.bin, dir)
	return seeds, all, err
}

var percent = regexp.MustCompile(`coverage: (\S+) of statements`)

// runCovered runs the targets over their seeds, and gives what they covered.
func runCovered(ctx context.Context, bin, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^Fuzz", "-test.timeout", "10m")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	m := percent.FindSubmatch(out)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %s", err, tail(string(out)))
	case m == nil:
		return "", fmt.Errorf("no figure in %s", tail(string(out)))
	}
	return string(m[1]), nil
}

// withCorpus makes a directory that looks like the package's, in which the kept
// inputs are seeds: only those are run without fuzzing.
func (p *pkg) withCorpus(o report.Options, corpus string) (dir string, err error) {
	dir = filepath.Join(o.Work, "mirror")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := link(p.dir, dir, "testdata"); err != nil {
		return "", err
	}
	if err := link(filepath.Join(p.dir, "testdata"), filepath.Join(dir, "testdata"), "fuzz"); err != nil {
		return "", err
	}
	for _, from := range []string{filepath.Join(p.dir, "testdata", "fuzz"), corpus} {
		for name := range p.holds {
			if err := link(filepath.Join(from, name), filepath.Join(dir, "testdata", "fuzz", name), ""); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}

// link fills a directory with links to what lies in another one, but for one name.
// It is all right when the other one is not there.
func link(from, to, but string) error {
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == but {
			continue
		}
		if err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
