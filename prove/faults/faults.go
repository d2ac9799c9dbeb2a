// Package faults makes everything fail that a launch and its proxy rest on, one
// thing at a time, and looks at what comes of it: the command runs with the whole
// confinement around it, or it does not run and the message says at which step
// and what to do. The product has no hooks for this: system calls fail because a
// tracer answers in the kernel's place (c/trace.c), everything else fails for real.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// atOnce is how many launches there are at a time.
const atOnce = 2

// budget is how long each half of the injections may take; what does not fit is
// left out, in the order that the seed decided.
type budget struct {
	launch, traffic time.Duration
	layers          time.Duration // for commits, and again for spoiled files
	around          int           // of the surroundings
}

var (
	fullBudget  = budget{launch: 120 * time.Second, traffic: 60 * time.Second, layers: 30 * time.Second, around: 1000}
	shortBudget = budget{launch: 40 * time.Second, traffic: 18 * time.Second, layers: 4 * time.Second, around: 12}
)

// Run is the part of the proof.
func Run(ctx context.Context, o report.Options) (report.Part, error) {
	p := report.Part{
		Name: "faults", Title: "Faults at every step", Began: time.Now(),
		Intro: "System calls of the launcher, of the stages inside, of init, of the starter and of the proxy were made to fail, to kill their process " +
			"or to take long, each in a launch of its own; then limits, files, disks and peers were spoiled for real. A launch must either run its command " +
			"with the whole confinement around it, as a probe inside sees it, or fail closed: exit code 125, the step and a remedy in words, and nothing left behind. " +
			"Of the system calls as many were tried as there was time for, in an order that the seed decides; none came with the same fault twice before each had come once.",
	}
	t := &trial{budget: fullBudget, part: &p}
	if o.Short {
		t.budget = shortBudget
	}
	var err error
	if t.workshop, err = newWorkshop(ctx, o); err != nil {
		return p, err
	}
	defer t.workshop.close()
	err = t.run(ctx)
	p.Took = time.Since(p.Began)
	return p, err
}

// trial is one run of this part.
type trial struct {
	*workshop
	budget budget
	part   *report.Part
	full   string // what the probe says when nothing is wrong
}

func (t *trial) run(ctx context.Context) error {
	w, err := t.newWorld("base", strictPolicy)
	if err != nil {
		return err
	}
	defer w.close()
	calls, full, err := w.baseline(ctx)
	if err != nil {
		return err
	}
	t.full = full
	if err := w.control(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return t.launches(ctx, calls) }, t.surrounded, t.layers, t.peers,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// control runs the probe without a sandbox: it must get at what it must not get
// at inside, or its silence would mean nothing.
func (w *world) control(ctx context.Context) error {
	words := w.words()
	e, err := w.run(ctx, never, words[slices.Index(words, "--")+1:]...)
	if err != nil {
		return err
	}
	for _, what := range []string{"secret: ESCAPED", "host: ESCAPED", "protected: ESCAPED"} {
		if !strings.Contains(e.out, what) {
			return fmt.Errorf("control: the probe does not say %q without a sandbox", what)
		}
	}
	_ = os.Remove(w.ws + "/.vscode")
	return nil
}

// launches injects into launches without a network.
func (t *trial) launches(ctx context.Context, calls []fault) error {
	list := injections(calls, t.Seed)
	t.Say("faults: %d system calls in a launch, %d faults to inject, for %v", len(calls), len(list), t.budget.launch)
	results, _, err := t.sweep(ctx, list, t.budget.launch, func(i int) (*world, error) { return t.newWorld("w"+itoa(i), strictPolicy) })
	if err != nil {
		return err
	}
	for i := range results {
		results[i].at = launchStep(results[i])
	}
	t.add("Launch: system calls that fail", len(list), results)
	return nil
}

// surrounded launches with something wrong around it.
func (t *trial) surrounded(ctx context.Context) error {
	list := surroundings()
	if !t.drop {
		// An ordinary user cannot mount; root's limits of processes do not hold.
		list = slices.DeleteFunc(list, func(s surrounding) bool { return s.script != "" && os.Getuid() != 0 })
	}
	if os.Getuid() != 0 {
		t.part.Missing = append(t.part.Missing, report.Missing{ID: "mounts", What: "full, read-only and missing file systems, a lying resolver", Reason: "machine: mounting them takes root"})
	}
	r := rand.New(rand.NewPCG(uint64(t.Seed), 2))
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	list = list[:min(len(list), t.budget.around)]
	t.Say("faults: %d launches with something wrong around them", len(list))
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		results []result
		failed  error
		next    = make(chan int)
	)
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				one, err := t.around(ctx, "a"+itoa(i), list[i], t.full)
				mu.Lock()
				one.at = one.role
				results, failed = append(results, one), errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	wg.Wait()
	if failed != nil {
		return failed
	}
	t.add("Launch: what is wrong around it", len(list), results)
	return nil
}

// peers speaks to servers, clients and resolvers that misbehave, and then makes
// system calls of the proxy fail while it serves.
func (t *trial) peers(ctx context.Context) error {
	if _, err := exec.LookPath("curl"); err != nil {
		t.part.Missing = append(t.part.Missing, report.Missing{ID: "peers", What: "the steps of the proxy", Reason: "machine: there is no curl"})
		return nil
	}
	p, err := newPeers()
	if err != nil {
		return err
	}
	defer p.close()
	stop, err := p.fill()
	if err != nil {
		return err
	}
	defer stop()
	if err := t.misbehaved(ctx, p); err != nil {
		return err
	}
	make := func(i int) (*world, error) { return t.netWorld("n"+itoa(i), p, p.short()) }
	w, err := t.netWorld("nb", p, p.short())
	if err != nil {
		return err
	}
	defer w.close()
	calls, _, err := w.baseline(ctx)
	if err != nil {
		return err
	}
	calls = slices.DeleteFunc(calls, func(f fault) bool { return f.role != "proxy" && (f.role != "launcher" || f.after != "exec") })
	list := injections(calls, t.Seed)
	t.Say("faults: %d system calls of a proxy at work, %d faults to inject, for %v", len(calls), len(list), t.budget.traffic)
	results, _, err := t.sweep(ctx, list, t.budget.traffic, make)
	if err != nil {
		return err
	}
	for i := range results {
		results[i].at = proxyStep(results[i].fault)
	}
	t.add("Proxy: system calls that fail while it serves", len(list), results)
	if n := p.denied.Load(); n > 0 {
		t.part.Failed = append(t.part.Failed, fmt.Sprintf("%d requests that no rule allows arrived at a server", n))
	}
	return nil
}

// add makes a table of results and lists what went wrong.
func (t *trial) add(title string, planned int, results []result) {
	table := report.Table{Title: title, Columns: []string{"Step", "Fault", "Injected", "Ran, all held", "Failed closed", "In the launcher's words"}}
	rows := map[[2]string]*row{}
	for _, r := range results {
		key := [2]string{r.at, r.kind}
		if rows[key] == nil {
			rows[key] = &row{}
		}
		rows[key].add(r)
		if r.wrong != "" && len(t.part.Failed) < 60 {
			t.part.Failed = append(t.part.Failed, fmt.Sprintf("%s: %s: %s", r.at, r.fault, r.wrong))
		}
	}
	var sum row
	for _, key := range sorted(rows) {
		r := rows[key]
		table.Rows = append(table.Rows, []string{key[0], key[1], itoa(r.n), itoa(r.full), itoa(r.closed), r.sample})
		sum.n, sum.full, sum.closed = sum.n+r.n, sum.full+r.full, sum.closed+r.closed
	}
	table.Rows = append(table.Rows, []string{"**all**", "", itoa(sum.n), itoa(sum.full), itoa(sum.closed), fmt.Sprintf("of %d planned", planned)})
	if sum.n == 0 {
		t.part.Failed = append(t.part.Failed, title+": nothing was injected")
	}
	t.part.Tables = append(t.part.Tables, table)
	t.Say("faults: %s: %d of %d: %d ran with all held, %d failed closed", title, sum.n, planned, sum.full, sum.closed)
}

// row counts one kind of fault at one step.
type row struct {
	n, full, closed int
	sample          string
}

func (r *row) add(one result) {
	r.n++
	switch {
	case one.wrong != "":
	case one.full:
		r.full++
	default:
		r.closed++
		if r.sample == "" && one.message != "" {
			r.sample = "`" + strings.NewReplacer("`", "'", "|", "/").Replace(shortened(one.message)) + "`"
		}
	}
}

// shortened leaves out the directory of the world, and what is too long for a table.
func shortened(text string) string {
	words := strings.Fields(text)
	for i, w := range words {
		if at := strings.Index(w, "/prove-faults-"); at >= 0 {
			rest := strings.SplitN(w[at+1:], "/", 3)
			words[i] = "…/" + rest[len(rest)-1]
		}
	}
	text = strings.Join(words, " ")
	if r := []rune(text); len(r) > 140 {
		text = string(r[:140]) + "…"
	}
	return text
}

// order is that of the steps in a launch, then in the proxy.
var order = []string{ //nolint:gochecknoglobals // a table
	"compile", "preflight", "runtime", "proxy", "container", "network", "root", "limits", "terminal", "confine", "self-test", "exec", "end",
	"accept", "handshake", "head", "resolve", "dial", "upstream TLS", "forward", "streams", "answer", "audit write", "reload", "ledger memory", "process", "commit", "layers",
}

func sorted(rows map[[2]string]*row) [][2]string {
	var keys [][2]string
	for k := range rows {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]string) int {
		if d := slices.Index(order, a[0]) - slices.Index(order, b[0]); d != 0 {
			return d
		}
		return strings.Compare(a[1], b[1])
	})
	return keys
}
