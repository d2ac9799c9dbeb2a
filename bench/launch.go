package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	launchRounds = 40
	crowdSize    = 50
	crowdRounds  = 3
)

// contender is one way to launch "true".
type contender struct {
	name string
	argv []string
	took series
	fail error
}

// contenders gives bare, bubblewrap with the mounts that the sandbox has, the
// sandbox, and other tools that are installed.
func (s *shop) contenders() ([]*contender, error) {
	truth, err := exec.LookPath("true")
	if err != nil {
		return nil, err
	}
	all := []*contender{{name: "bare", argv: []string{truth}}, {name: "hermes-wrap", argv: s.inside(s.policy, truth)}}
	if bwrap, err := exec.LookPath("bwrap"); err == nil {
		args, err := s.bwrapArgs(bwrap)
		if err != nil {
			return nil, err
		}
		all = append(all, &contender{name: "bwrap", argv: append(args, truth)})
	}
	for name, args := range map[string][]string{"srt": {truth}, "codex": {"sandbox", "linux", truth}} {
		if tool, err := exec.LookPath(name); err == nil {
			all = append(all, &contender{name: name, argv: append([]string{tool}, args...)})
		}
	}
	return all, nil
}

// bwrapArgs gives bubblewrap the mounts that are seen inside the sandbox.
func (s *shop) bwrapArgs(bwrap string) ([]string, error) {
	table, err := s.output(s.inside(s.policy, "cat", "/proc/self/mountinfo")...)
	if err != nil {
		return nil, err
	}
	args := []string{bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev"}
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		at := slices.Index(f, "-")
		if at < 0 || len(f) < at+2 {
			continue
		}
		point, fstype := strings.ReplaceAll(f[4], `\040`, " "), f[at+1]
		if point == "/" || strings.HasPrefix(point+"/", "/proc/") || strings.HasPrefix(point+"/", "/dev/") || strings.HasPrefix(point+"/", "/sys/") {
			continue
		}
		_, missing := os.Stat(point)
		switch {
		case fstype == "tmpfs":
			if info, err := os.Stat(point); err == nil && info.IsDir() {
				args = append(args, "--tmpfs", point)
			}
		case missing != nil:
		case slices.Contains(strings.Split(f[5], ","), "ro"):
			args = append(args, "--ro-bind", point, point)
		default:
			args = append(args, "--bind", point, point)
		}
	}
	for _, link := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		if to, err := os.Readlink(link); err == nil {
			args = append(args, "--symlink", to, link)
		}
	}
	return append(args, "--chdir", s.dir), nil
}

func (c *contender) run(s *shop) {
	if c.fail != nil {
		return
	}
	begin := time.Now()
	if _, err := s.output(c.argv...); err != nil {
		c.fail = err
		return
	}
	c.took = append(c.took, time.Since(begin).Seconds())
}

func measureLaunch(s *shop) ([]row, error) {
	all, err := s.contenders()
	if err != nil {
		return nil, err
	}
	for range launchRounds {
		for _, c := range all {
			c.run(s)
		}
	}
	find := func(name string) *contender {
		for _, c := range all {
			if c.name == name && c.fail == nil {
				return c
			}
		}
		return nil
	}
	ours := find("hermes-wrap")
	if ours == nil {
		return nil, all[1].fail
	}
	rows := []row{{What: "launch of `true`, bare", Figure: all[0].took.ms() + " (min/median of 40 interleaved)"}}
	if b := find("bwrap"); b != nil {
		rows = append(rows, row{What: "launch of `true`, bubblewrap, same mounts, no filters", Figure: b.took.ms()})
		ratio, least := ours.took.median()/b.took.median(), ours.took.min()/b.took.min()
		rows = append(rows, within("launch of `true`, everything on", "aim: 4 × bubblewrap",
			fmt.Sprintf("%s; %.1f × by median, %.1f × by minimum", ours.took.ms(), ratio, least), ratio, 4))
	} else {
		rows = append(rows, row{What: "launch of `true`, everything on", Budget: "aim: 4 × bubblewrap", Figure: ours.took.ms() + "; bubblewrap is not present"})
	}
	for _, name := range []string{"srt", "codex"} {
		what, budget := "launch of `true`, against "+name, "half of it"
		if c := find(name); c != nil {
			rows = append(rows, within(what, budget, fmt.Sprintf("it: %s; ours is %.2f of it", c.took.ms(), ours.took.median()/c.took.median()),
				ours.took.median(), c.took.median()/2))
			continue
		}
		rows = append(rows, row{What: what, Budget: budget, Figure: "not present"})
	}
	return rows, nil
}

func measureCrowd(s *shop) ([]row, error) {
	all, err := s.contenders()
	if err != nil {
		return nil, err
	}
	took := map[string]series{}
	failed := map[string][]error{}
	for range crowdRounds {
		for _, c := range all {
			d, errs := s.crowd(c.argv)
			took[c.name] = append(took[c.name], d)
			failed[c.name] = append(failed[c.name], errs...)
		}
	}
	bare := took["bare"].median()
	rows := []row{}
	for _, c := range all[1:] {
		ratio := took[c.name].median() / bare
		figure := fmt.Sprintf("%.1f × (%.2f s against %.2f s); %d of %d failed", ratio, took[c.name].median(), bare, len(failed[c.name]), crowdSize*crowdRounds)
		if len(failed[c.name]) > 0 {
			figure += ", the first: " + failed[c.name][0].Error()
		}
		if c.name == "hermes-wrap" {
			rows = append(rows, judged("50 sandboxes at once against 50 bare processes", "15 ×, all run", figure, ratio <= 15 && len(failed[c.name]) == 0))
			continue
		}
		rows = append(rows, row{What: "50 at once, " + c.name, Figure: figure})
	}
	return rows, nil
}

// crowd starts a command many times at once and tells how long all of them
// took and which failed.
func (s *shop) crowd(argv []string) (seconds float64, failed []error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	begin := time.Now()
	for range crowdSize {
		wg.Go(func() {
			if _, err := s.output(argv...); err != nil {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return time.Since(begin).Seconds(), failed
}
