package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const layeredPolicy = strictPolicy + "workspace: {access: cow}\nstate: persistent\n"

// The user's file before a commit and after it, and nothing in between.
const (
	before = "of the user\n"
	after  = "changed inside\n"
)

// layered makes a session with changes that are not committed yet, and a snapshot
// of them.
func (w *world) layered(ctx context.Context) error {
	_, _ = w.run(ctx, never, w.Bin, "rm", "--state", "s")
	_ = os.RemoveAll(filepath.Join(w.state, "sessions"))
	_ = os.RemoveAll(filepath.Join(w.ws, "d"))
	_ = os.Remove(filepath.Join(w.ws, "new"))
	if err := os.WriteFile(filepath.Join(w.ws, "kept/file"), []byte(before), 0o600); err != nil {
		return err
	}
	if err := w.own(w.dir); err != nil {
		return err
	}
	script := "printf 'changed inside\\n' > kept/file; echo new > new; mkdir d; echo x > d/x"
	for _, argv := range [][]string{
		{w.Bin, "--quiet", "--policy", w.policy, "--name", "s", "--", "sh", "-c", script}, {w.Bin, "snapshot", "s", "--as", "first"},
	} {
		e, err := w.run(ctx, never, argv...)
		if err != nil {
			return err
		}
		if e.exit != 0 {
			return fmt.Errorf("make a session with changes: exit %d: %s", e.exit, e.err)
		}
	}
	return nil
}

// whole gives what the user's file holds, and tells whether that is one of the two.
func (w *world) whole() (text string, ok bool) {
	b, err := os.ReadFile(filepath.Join(w.ws, "kept/file"))
	return string(b), err == nil && (string(b) == before || string(b) == after)
}

// outcome judges a command about a session, which is no launch.
func outcome(e ended) string {
	switch {
	case e.hung:
		return "it hung: " + strings.Join(e.stuck, ", ")
	case e.exit > exitFailed && !endedByGo(e) && (e.fault.kind != "killed" || e.exit != exitKilled):
		return "exit status " + itoa(e.exit)
	case goTrace.MatchString(e.err) && !endedByGo(e):
		return "a Go trace: " + goTrace.FindString(e.err)
	case e.exit != 0 && e.fault.kind != "killed" && !endedByGo(e) && !strings.Contains(e.err, "hermes-wrap: error: "):
		return "exit status " + itoa(e.exit) + " without a word"
	}
	return ""
}

// layers spoils what is kept of sessions, and makes system calls of a commit fail.
func (t *trial) layers(ctx context.Context) error {
	w, err := t.newWorld("layers", layeredPolicy)
	if err != nil {
		return err
	}
	defer w.close()
	over := time.Now().Add(t.budget.layers)
	results, err := t.commits(ctx, w, over)
	if err != nil {
		return err
	}
	more, planned, err := t.spoiled(ctx, w, over.Add(t.budget.layers))
	if err != nil {
		return err
	}
	t.add("Layers: system calls of a commit that fail, and files that are spoiled", planned+len(results), append(results, more...))
	return nil
}

// commits injects faults into commits. Whatever comes of one, the user's file is
// whole, and the commit can be finished.
func (t *trial) commits(ctx context.Context, w *world, over time.Time) (out []result, err error) {
	if err := w.layered(ctx); err != nil {
		return nil, err
	}
	e, err := w.run(ctx, "", w.Bin, "commit", "s")
	if err != nil || e.exit != 0 {
		return nil, fmt.Errorf("commit without a fault: exit %d: %w: %s", e.exit, err, e.err)
	}
	for _, f := range injections(e.calls, t.Seed) {
		if time.Now().After(over) && len(out) >= least/2 || ctx.Err() != nil {
			break
		}
		if err := w.layered(ctx); err != nil {
			return out, err
		}
		e, err := w.run(ctx, f.rule(), w.Bin, "commit", "s")
		if err != nil {
			return out, err
		}
		if !e.hit {
			continue
		}
		f.detail, e.fault = e.fault.detail, f
		r := result{fault: f, verdict: verdict{full: e.exit == 0, wrong: outcome(e)}, at: "commit", err: e.err}
		if m := strings.TrimPrefix(lineWith(e.err, "hermes-wrap: error: "), "hermes-wrap: error: "); m != "" {
			r.message = m
		}
		text, ok := w.whole()
		if r.wrong == "" && (!ok || e.exit == 0 && text != after) {
			r.wrong = fmt.Sprintf("the user's file holds %q after exit %d", text, e.exit)
		}
		if r.wrong == "" && e.exit != 0 {
			r.wrong, err = w.finished(ctx)
		}
		if out = append(out, r); err != nil {
			return out, err
		}
	}
	return out, nil
}

// finished finishes a commit that was broken off, or commits what was not begun.
func (w *world) finished(ctx context.Context) (wrong string, err error) {
	var said []string
	for _, argv := range [][]string{{w.Bin, "commit", "--repair", "s"}, {w.Bin, "commit", "s"}} {
		e, err := w.run(ctx, never, argv...)
		if err != nil {
			return "", err
		}
		said = append(said, strings.TrimSpace(e.err))
	}
	if text, _ := w.whole(); text != after {
		return fmt.Sprintf("it could not be finished: the user's file holds %q: %s", text, strings.Join(said, "; ")), nil
	}
	return "", nil
}

// spoiled damages each kind of file that a session keeps, and lets every command
// meet it.
func (t *trial) spoiled(ctx context.Context, w *world, over time.Time) (out []result, planned int, err error) {
	if err := w.layered(ctx); err != nil {
		return nil, 0, err
	}
	type pair struct{ file, how string }
	var pairs []pair
	root := filepath.Join(w.state, "sessions/s")
	for _, pattern := range []string{"session.json", "state/*/layer.json", "snapshots/*/*.json", "snapshots/*/*/*.json", "state/*/upper/kept/file"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, path := range found[:min(1, len(found))] {
			for how := range damages {
				pairs = append(pairs, pair{path, how})
			}
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.file+a.how, b.file+b.how) })
	rand.New(rand.NewPCG(uint64(t.Seed), 3)).Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	for _, p := range pairs {
		if time.Now().After(over) && len(out) >= least/4 || ctx.Err() != nil {
			break
		}
		if err := w.layered(ctx); err != nil {
			return out, len(pairs), err
		}
		found, _ := filepath.Glob(p.file)
		if len(found) == 0 {
			continue // snapshots bear the time
		}
		if err := damages[p.how](found[0]); err != nil {
			return out, len(pairs), err
		}
		if err := w.own(w.dir); err != nil {
			return out, len(pairs), err
		}
		name := strings.TrimPrefix(p.file, root+"/")
		r := result{fault: fault{role: "session", call: name, kind: "state", detail: name + " " + p.how}, verdict: verdict{full: true}, at: "layers"}
		for _, argv := range [][]string{
			{"ps", "--all"},
			{"review", "s"},
			{"snapshots", "s"},
			{"commit", "--dry-run", "s"},
			{"--quiet", "--policy", w.policy, "--name", "s", "--", "true"},
			{"restore", "s", "first"},
			{"commit", "s"},
			{"commit", "--repair", "s"},
			{"discard", "s"},
			{"rm", "--state", "s"},
		} {
			e, err := w.run(ctx, never, append([]string{w.Bin}, argv...)...)
			if err != nil {
				return out, len(pairs), err
			}
			r.full = r.full && e.exit == 0
			if e.exit != 0 && r.message == "" {
				r.message = strings.TrimPrefix(lineWith(e.err, "hermes-wrap: error: "), "hermes-wrap: error: ")
			}
			if what := outcome(e); what != "" && r.wrong == "" {
				r.wrong, r.err = strings.Join(argv, " ")+": "+what, e.err
			}
		}
		// What the layer itself held is the layer's; no record may change the rest.
		if text, ok := w.whole(); !ok && r.wrong == "" && !strings.Contains(name, "upper/") {
			r.wrong = fmt.Sprintf("the user's file holds %q", text)
		}
		out = append(out, r)
	}
	return out, len(pairs), nil
}
