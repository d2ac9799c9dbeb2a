package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/state"
)

// A layer in which every file of a large tree was changed.
const (
	stateDirs   = 500
	stateFiles  = 100 // in each
	stateRounds = 2
)

// stateBench is a session with such a layer, over a tree of its own.
type stateBench struct {
	shop                   *shop
	home, tree, was, upper string // upper is what the layer holds
	times                  map[string]series
}

// measureState runs the commands on 50,000 changed files and sets their times
// against cp -a of as many files, in the same rounds.
func measureState(s *shop) ([]row, error) {
	b := stateBench{shop: s, home: filepath.Join(s.root, "state-home"), times: map[string]series{}}
	b.tree, b.was, b.upper = filepath.Join(b.home, "tree"), filepath.Join(b.home, "was"), filepath.Join(b.home, "changed")
	defer os.RemoveAll(b.home)
	if err := errors.Join(stateTree(b.was, "old"), stateTree(b.upper, "new")); err != nil {
		return nil, err
	}
	for range stateRounds {
		if err := b.round(); err != nil {
			return nil, err
		}
	}
	return b.rows(), nil
}

// rows sets each command against what does the same work without keeping
// anything safe: to free the blocks of old files takes longer than to write new
// ones on many disks.
func (b stateBench) rows() []row {
	cp, over, rm := b.times["cp"].median(), b.times["over"].median(), b.times["rm"].median()
	rows := []row{
		{What: "`cp -a` of 50,000 files", Figure: b.times["cp"].ms()},
		{What: "`cp -a` of 50,000 files over as many others", Figure: fmt.Sprintf("%s; %.2f × `cp -a`", b.times["over"].ms(), over/cp)},
		{What: "`rm -rf` of 50,000 files", Figure: fmt.Sprintf("%s; %.2f × `cp -a`", b.times["rm"].ms(), rm/cp)},
	}
	for _, r := range []struct {
		what, key, against string
		base, budget       float64
	}{
		{"`review --stat`", "stat", "`cp -a`", cp, 1},
		{"`review`", "review", "`cp -a`", cp, 2},
		{"`commit`", "commit", "`cp -a` over others", over, 1.5},
		{"`discard`", "discard", "`rm -rf`", rm, 1.5},
		{"`snapshot`", "snapshot", "`cp -a`", cp, 2},
		{"`restore`", "restore", "`cp -a` and `rm -rf`", cp + rm, 1.5},
	} {
		took := b.times[r.key].median()
		figure := fmt.Sprintf("%.2f × (%s); %.2f × `cp -a`", took/r.base, b.times[r.key].ms(), took/cp)
		rows = append(rows, within(r.what+", 50,000 files changed", fmt.Sprintf("%.1f × %s", r.budget, r.against), figure, took/r.base, r.budget))
	}
	return rows
}

func stateTree(dir, content string) error {
	for i := range stateDirs {
		sub := filepath.Join(dir, "d"+strconv.Itoa(i))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		for k := range stateFiles {
			text := fmt.Sprintf("package d%d\n\nconst C = %q // %d\n", i, content, k)
			if err := os.WriteFile(filepath.Join(sub, "f"+strconv.Itoa(k)+".txt"), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b stateBench) layer() string {
	return filepath.Join(b.home, "hermes-wrap", "sessions", "bench", "state", "workspace")
}

// round makes the session anew and runs every command once.
func (b stateBench) round() error {
	session := filepath.Dir(filepath.Dir(b.layer()))
	if err := errors.Join(os.RemoveAll(b.tree), os.RemoveAll(session), os.MkdirAll(b.layer(), 0o700)); err != nil {
		return err
	}
	if err := runWords("cp", "-a", b.was, b.tree); err != nil {
		return err
	}
	if err := b.describe(); err != nil {
		return err
	}
	// The same work without us, on a tree of its own.
	if err := errors.Join(runWords("cp", "-a", b.was, b.tree+"2"), b.timed("over", "cp", "-a", b.upper+"/.", b.tree+"2"), b.timed("rm", "rm", "-rf", b.tree+"2")); err != nil {
		return err
	}
	if err := b.timed("cp", "cp", "-a", b.upper, filepath.Join(b.layer(), "upper")); err != nil {
		return err
	}
	for _, step := range [][]string{
		{"stat", "review", "bench", "--stat"},
		{"review", "review", "bench"},
		{"snapshot", "snapshot", "bench", "--as", "all"},
		{"restore", "restore", "bench", "all"},
		{"discard", "discard", "bench"},
		{"", "restore", "bench", "all"},
		{"commit", "commit", "bench"},
	} {
		if err := b.timed(step[0], append([]string{"env", "XDG_STATE_HOME=" + b.home, b.shop.bin}, step[1:]...)...); err != nil {
			return err
		}
	}
	return nil
}

func (b stateBench) describe() error {
	m, err := state.NewMeta(b.tree, state.Overlay, "directory")
	if err != nil {
		return err
	}
	dir, err := os.Open(b.layer())
	if err != nil {
		return err
	}
	return errors.Join(m.Write(dir), dir.Close())
}

// timed runs a command on a disk that is at rest; "" does not count.
func (b stateBench) timed(key string, argv ...string) error {
	unix.Sync()
	began := time.Now()
	err := runWords(argv...)
	if key != "" {
		b.times[key] = append(b.times[key], time.Since(began).Seconds())
	}
	return err
}

func runWords(argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %.500s", argv, err, out)
	}
	return nil
}
