package faults

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

const strictPolicy = `version: 1
name: faults
extends: [builtin:strict]
`

// most is how many of the same call of the same process are tried with each
// error: a stage opens hundreds of files in one loop.
const most = 12

// injections makes the list of faults from the calls of a recorded launch, in an
// order that the seed decides: whoever has no time for all of them has tried each
// call of each process with each fault before any a second time.
func injections(calls []fault, seed int64) []fault {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	by := map[[2]string][]fault{}
	var keys [][2]string
	for _, c := range calls {
		key := [2]string{c.role, c.call}
		if by[key] == nil {
			keys = append(keys, key)
		}
		by[key] = append(by[key], c)
	}
	kinds := slices.SortedFunc(maps.Keys(wrongs), func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	var out []fault
	add := func(list []fault, kind [2]string, most int) {
		list = slices.Clone(list)
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for i, f := range list[:min(most, len(list))] {
			f.kind, f.action, f.rank = kind[0], kind[1], i
			out = append(out, f)
		}
	}
	for _, key := range keys {
		for _, kind := range kinds { // not of the map: the seed decides, and nothing else
			if slices.Contains(wrongs[kind], key[1]) {
				add(by[key], kind, most)
			}
		}
		if slices.Contains(untrue, key) {
			add(by[key], [2]string{"no effect", "value=0"}, most)
		}
		for _, kind := range anywhere {
			add(by[key], kind, max(1, most/5))
		}
	}
	slices.SortFunc(out, func(a, b fault) int { return strings.Compare(a.rule(), b.rule()) })
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	slices.SortStableFunc(out, func(a, b fault) int { return a.rank - b.rank })
	return out
}

// result is one injection with its verdict.
type result struct {
	fault
	verdict
	at  string // the step that it is listed under
	err string // what the launcher said
}

// baseline records one launch without a fault: its calls and what the probe says
// when all is well. It runs twice, for the first makes what stays.
func (w *world) baseline(ctx context.Context) (calls []fault, full string, err error) {
	for range 2 {
		e, err := w.netRun(ctx, "")
		if err != nil {
			return nil, "", err
		}
		if v := judge(e, e.out); !v.full || v.wrong != "" {
			return nil, "", fmt.Errorf("launch without a fault: exit %d, %s\n%s%s", e.exit, v.wrong, e.out, e.err)
		}
		calls, full = e.calls, e.out
	}
	w.remember()
	return calls, full, nil
}

// try injects one fault.
func (w *world) try(ctx context.Context, f fault, full string) (result, bool, error) {
	e, err := w.netRun(ctx, f.rule())
	if err != nil {
		return result{}, false, err
	}
	kind, action := f.kind, f.action
	if e.hit && impossible(kind, e.fault) {
		return result{}, false, nil
	}
	if e.hit {
		f = e.fault
		f.kind, f.action = kind, action
		e.fault = f
	}
	r := result{fault: f, verdict: judge(e, full), err: e.err}
	if r.wrong == "" && strings.HasPrefix(w.reloaded, "reload failed without") {
		r.wrong = w.reloaded
	}
	if r.wrong == "" {
		r.wrong = w.tidy(ctx, f, full)
	}
	if r.wrong != "" {
		_, _ = w.netRun(ctx, never) // sweeps, not to be said again by the next
		w.remember()
	}
	return r, e.hit, nil
}

// impossible tells a fault that no kernel makes: no disk is behind a pipe (Go waits
// for a child to end that could not say whether it was executed), and of the threads
// of a process none may change its ids less than another. Which call is met is only
// known when it is.
func impossible(kind string, f fault) bool {
	ids := slices.Contains([]string{"setuid", "setgid", "setresuid", "setresgid", "setgroups"}, f.call)
	return kind == "EIO" && strings.HasPrefix(f.detail, "pipe:") || kind == "EPERM" && ids && f.n > 1 && f.role != "starter"
}

// tidy looks for what a run left. What nobody was able to remove, since the
// launcher was killed or the removal itself was refused, the next launch sweeps.
func (w *world) tidy(ctx context.Context, f fault, full string) string {
	left := w.leftovers()
	if len(left) == 0 {
		return ""
	}
	e, err := w.netRun(ctx, never)
	if err != nil {
		return err.Error()
	}
	if v := judge(e, full); !v.full || v.wrong != "" {
		return fmt.Sprintf("the next launch: exit %d, %s %s", e.exit, v.wrong, v.message)
	}
	if after := w.leftovers(); len(after) > 0 {
		return "left behind, also after another launch: " + strings.Join(after[:min(3, len(after))], ", ")
	}
	if f.kind != "killed" && f.kind != "crashed" && !removes(f.call) {
		return "left behind for the next launch: " + strings.Join(left[:min(3, len(left))], ", ")
	}
	return ""
}

// removes tells calls without which nothing can be removed.
func removes(call string) bool {
	return slices.Contains([]string{"unlinkat", "getdents64", "openat", "newfstatat", "umount2", "kill", "flock"}, call)
}

// least is how many faults are injected on a machine that is too busy for more.
const least = 8

// sweep tries faults on several worlds at once until the list or the time is over.
func (s *workshop) sweep(ctx context.Context, list []fault, patience time.Duration, world func(i int) (*world, error)) (out []result, missed int, err error) {
	over := time.Now().Add(patience)
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		next int
	)
	take := func() (fault, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(list) || ctx.Err() != nil || err != nil || time.Now().After(over) && next >= least {
			return fault{}, false
		}
		next++
		return list[next-1], true
	}
	worker := func(i int) error {
		w, err := world(i)
		if err != nil {
			return err
		}
		defer w.close()
		_, full, err := w.baseline(ctx)
		if err != nil {
			return err
		}
		for {
			f, ok := take()
			if !ok {
				return nil
			}
			r, hit, err := w.try(ctx, f, full)
			if err != nil {
				return err
			}
			mu.Lock()
			if hit {
				out = append(out, r)
			} else {
				missed++
			}
			mu.Unlock()
		}
	}
	for i := range atOnce {
		wg.Go(func() {
			if e := worker(i); e != nil {
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					err = e
				}
			}
		})
	}
	wg.Wait()
	return out, missed, err
}
