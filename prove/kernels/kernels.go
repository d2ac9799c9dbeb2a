// Package kernels starts the sandbox on other kernels than the machine's:
// Debian's, from the oldest that is still served to the newest, each in an
// emulated machine without a network. What is said there is compared with what
// was written down, and what is enforced is tried.
//
// For work on it: HERMES_BOOTS is a pattern of the boots to make ("bookworm/v2"),
// HERMES_UPDATE=1 writes down what was said, HERMES_AGAIN=1 judges what the last
// boots said and makes none.
package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// suites are where the kernels come from, oldest first.
var suites = []string{"bullseye", "bookworm", "trixie", "sid", "experimental"}

// rootSuite is whose programs the guests have: the oldest with an AppArmor that
// knows rules for user namespaces.
const rootSuite = "trixie"

// shortSuites are those of the short run.
var shortSuites = []string{"bookworm", "sid"}

// bootLimit is many times what a boot takes on a machine with nothing else to do.
const bootLimit = 25 * time.Minute

// Run boots the kernels and judges what they say.
func Run(ctx context.Context, o report.Options) (report.Part, error) {
	p := report.Part{
		Name: "kernels", Title: "Kernels", Began: time.Now(),
		Intro: "Debian's kernels are booted in emulated machines (no KVM, no network), with the same root file system. In each, `hermes-wrap doctor` " +
			"and launches are run as an ordinary user and as root. *Held* means that the command ran and a probe, which reaches all of it without a sandbox, " +
			"reached no file, process, socket or host that the policy does not grant. *Refused* means exit code 125 before the command ran, with one thing to do. " +
			"All that is said is compared with `prove/kernels/expected`. A few cases of the escape table are run as well, and judged as on the machine itself.",
	}
	defer func() { p.Took = time.Since(p.Began) }()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		p.Missing = append(p.Missing, report.Missing{ID: "kernels", What: "all of it", Reason: "machine: no qemu-system-x86_64: install qemu-system-x86"})
		return p, nil
	}
	b := builder{o: o, dir: o.Work}
	all, err := b.prepare(ctx, &p)
	if err != nil {
		return p, err
	}
	only, err := regexp.Compile(os.Getenv("HERMES_BOOTS"))
	if err != nil {
		return p, fmt.Errorf("HERMES_BOOTS: %w", err)
	}
	var results runs
	for _, bt := range boots {
		for _, k := range all {
			if (!o.Short || slices.Contains(bt.Short, k.Suite)) && (bt.Suites == nil || slices.Contains(bt.Suites, k.Suite)) && only.MatchString(k.Suite+"/"+bt.Name) {
				results = append(results, &result{kernel: k, boot: bt})
			}
		}
	}
	bootAll(ctx, b, results)
	for _, r := range results {
		if r.err != nil {
			p.Failed = append(p.Failed, fmt.Sprintf("%s, %s: %v", r.kernel.version(), r.boot.Name, r.err))
		}
	}
	if err := compare(o.Root, results, &p); err != nil {
		return p, err
	}
	p.Missing = append(p.Missing, results.refusing()...)
	p.Tables = tables(results)
	return p, nil
}

// prepare makes the root, the guest's program and the kernels that are served.
func (b builder) prepare(ctx context.Context, p *report.Part) ([]kernel, error) {
	want := suites
	if b.o.Short {
		want = shortSuites
	}
	missing, err := b.script(ctx, "lists", append([]string{rootSuite}, want...)...)
	if err != nil {
		return nil, err
	}
	if slices.Contains(missing, rootSuite) {
		p.Missing = append(p.Missing, report.Missing{ID: "kernels", What: "all of it", Reason: "machine: its apt knows no mirror of Debian's " + rootSuite})
		return nil, nil
	}
	if _, err := b.script(ctx, "root"); err != nil {
		return nil, err
	}
	if err := errors.Join(b.guest(ctx), b.escapes(ctx)); err != nil {
		return nil, err
	}
	var all []kernel
	for _, s := range want {
		if slices.Contains(missing, s) {
			p.Missing = append(p.Missing, report.Missing{ID: s, What: "the kernel of " + s, Reason: "machine: its packages are not served"})
			continue
		}
		k, err := b.kernel(ctx, s)
		if err != nil {
			return nil, err
		}
		b.o.Say("kernels: %s is %s", s, k.release)
		all = append(all, k)
	}
	return all, nil
}

// result is one boot of one kernel.
type result struct {
	kernel  kernel
	boot    boot
	report  protocol.Report
	checks  map[string]step
	took    time.Duration
	err     error
	judged  map[string]verdict // by variant/check/account
	ordered []string
}

// runs are all boots of a proof.
type runs []*result

// atOnce is how many guests run side by side. They wait a part of their time, and
// how busy the machine is does not show in them: see machine.args.
const atOnce = 3

func bootAll(ctx context.Context, b builder, results runs) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, r := range results {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r.run(ctx, b)
			b.o.Say("kernels: %s %s: %v %s", r.kernel.release, r.boot.Name, r.took.Round(100*time.Millisecond), errText(r.err))
		})
	}
	wg.Wait()
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (r *result) run(ctx context.Context, b builder) {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	dir := filepath.Join(b.dir, "boot-"+r.kernel.Suite+"-"+r.boot.Name)
	if r.err = os.MkdirAll(dir, 0o755); r.err != nil {
		return
	}
	job, checks := r.boot.job()
	r.checks = checks
	if os.Getenv("HERMES_AGAIN") != "" {
		r.report, r.err = readReport(filepath.Join(dir, "out"))
		r.judge()
		return
	}
	in, err := b.input(ctx, dir, job)
	if err != nil {
		r.err = err
		return
	}
	m := machine{kernel: r.kernel, root: filepath.Join(b.dir, "root.img"), in: in, guest: filepath.Join(b.dir, "guest"), dir: dir, append: r.boot.Append}
	m.tree = filepath.Join(dir, "in")
	if job.Minimal {
		m.minimal = filepath.Join(b.dir, "root", "usr", "bin", "busybox")
	}
	r.report, r.err = m.boot(ctx, bootLimit)
	if r.err == nil {
		r.err = os.RemoveAll(m.tree)
	}
	r.judge()
}

// judge gives each answer its verdict.
func (r *result) judge() {
	r.judged = map[string]verdict{}
	for _, a := range r.report.Answers {
		name := a.Name + "/" + a.User
		c, ok := r.checks[name]
		if !ok {
			continue
		}
		v := c.want.judge(a)
		v.Said = r.normal(v.Said)
		r.judged[name] = v
		r.ordered = append(r.ordered, name)
	}
	if r.err == nil && len(r.judged) != len(r.checks) {
		r.err = fmt.Errorf("%d answers to %d checks", len(r.judged), len(r.checks))
	}
}

// The columns of a table move with their widest cell, and the numbers of
// processes with everything.
var (
	columns = regexp.MustCompile(` {2,}|\t+`)
	pids    = regexp.MustCompile(`\[[0-9]+\]`)
	used    = regexp.MustCompile(`uses [0-9]+ MiB`)
)

// normal takes out what differs from one run to the next.
func (r *result) normal(said string) string {
	said = pids.ReplaceAllString(strings.ReplaceAll(said, r.kernel.release, "RELEASE"), "[PID]")
	said = used.ReplaceAllString(said, "uses N MiB")
	var b strings.Builder
	for line := range strings.Lines(said) {
		indent := ""
		if strings.HasPrefix(line, " ") {
			indent = "  "
		}
		line = strings.TrimSpace(columns.ReplaceAllString(strings.TrimSpace(line), " | "))
		b.WriteString(indent + strings.TrimSuffix(line, " |") + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}
