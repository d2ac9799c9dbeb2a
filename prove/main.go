// Command prove tries to break what the sandbox promises, part by part, and
// writes what came of it for a stranger to read.
//
//	HERMES_WRAP_BIN=bin/hermes-wrap go run ./prove [--short] [--only PART,…] [--seed N] [--write docs/proof.md]
//
// As root it also starts what an ordinary user starts, as HERMES_TEST_USER. It
// ends with 1 when anything escaped, failed, or was not exercised for another
// reason than a feature that the kernel or the machine lacks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// part is one part of the proof; the cheap ones come first. What is long is left
// out of a short run.
type part struct {
	name string
	run  report.Func
	long bool
}

// flags are what the command line asks for.
type flags struct {
	report.Options
	only, write string
	asJSON      bool
	began       time.Time
}

func main() {
	f, err := parse()
	if err == nil {
		err = run(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prove: error:", err)
		os.Exit(1)
	}
}

func parse() (flags, error) {
	var f flags
	flag.BoolVar(&f.Short, "short", false, "what a continuous integration run has time for")
	flag.StringVar(&f.only, "only", "", "run these parts alone: "+names()+"; several with commas")
	flag.Int64Var(&f.Seed, "seed", 0, "what is generated; 0 takes today's date")
	flag.StringVar(&f.Sandbox, "sandbox", "", "put another sandbox's command line in our place, for the escapes alone")
	flag.DurationVar(&f.Patience, "fuzztime", 0, "how long to fuzz each target; 0 shares out what the whole proof has")
	flag.StringVar(&f.write, "write", "", "write the report to this file; parts that are not run now stand in it as they last ended")
	flag.BoolVar(&f.asJSON, "json", false, "print the parts as JSON instead of the report")
	flag.Parse()
	if f.Seed == 0 {
		now := time.Now().UTC()
		f.Seed = int64(now.Year()*10000 + int(now.Month())*100 + now.Day())
	}
	if f.Sandbox != "" {
		f.only = "escapes"
	}
	for name := range strings.SplitSeq(f.only, ",") {
		if f.only != "" && !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return f, fmt.Errorf("no part %q; there are %s", name, names())
		}
	}
	f.Bin, f.User = os.Getenv("HERMES_WRAP_BIN"), os.Getenv("HERMES_TEST_USER")
	if f.Bin == "" {
		return f, errors.New("HERMES_WRAP_BIN is not set: it names the binary to try")
	}
	if os.Getuid() != 0 {
		f.User = ""
	} else if _, err := user.Lookup(f.User); err != nil {
		return f, errors.New("root needs the name of an ordinary user as well: set HERMES_TEST_USER")
	}
	var err error
	if f.Bin, err = filepath.Abs(f.Bin); err != nil {
		return f, err
	}
	f.Root, err = os.Getwd()
	f.began = time.Now()
	f.Say = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "prove: %7s "+format+"\n", append([]any{time.Since(f.began).Round(time.Second)}, args...)...)
	}
	return f, err
}

func names() string {
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	return strings.Join(all, ", ")
}

func run(f flags) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir := filepath.Join(f.Root, ".cache", "prove")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f.Say("seed %d", f.Seed)
	var found []report.Part
	for _, p := range parts {
		if f.only == "" && f.Short && p.long {
			continue
		}
		if f.only != "" && !slices.Contains(strings.Split(f.only, ","), p.name) {
			if f.write == "" {
				continue
			}
			old, err := report.Load(dir, p.name)
			if err != nil {
				old = report.Part{Name: p.name, Title: p.name, Absent: true}
			}
			found = append(found, old)
			continue
		}
		got, err := f.one(ctx, dir, p)
		if err != nil {
			return err
		}
		found = append(found, got)
	}
	head := report.Head{
		Kernel: kernel(), When: time.Now(),
		Machine: fmt.Sprintf("%s, %d CPUs", runtime.GOARCH, runtime.NumCPU()),
	}
	return f.deliver(head, found)
}

// one runs a part. One that could not be carried out has failed, and the rest
// goes on: a report with a hole in it is worth more than none.
func (f flags) one(ctx context.Context, dir string, p part) (report.Part, error) {
	o := f.Options
	o.Work = filepath.Join(dir, p.name)
	if err := os.MkdirAll(o.Work, 0o755); err != nil {
		return report.Part{}, err
	}
	f.Say("== %s", p.name)
	began := time.Now()
	got, err := p.run(ctx, o)
	if ctx.Err() != nil {
		return got, errors.New("interrupted")
	}
	got.Name, got.Release, got.Began, got.Took = p.name, release(o.Bin), began, time.Since(began)
	got.Seed, got.Short = o.Seed, o.Short
	if got.Title == "" {
		got.Title = p.name
	}
	if err != nil {
		got.Failed = append(got.Failed, "could not be carried out: "+err.Error())
	}
	for _, fault := range got.Faults() {
		f.Say("%s: FAILED: %s", p.name, fault)
	}
	f.Say("== %s: %s, %d failed", p.name, got.Took.Round(time.Second), len(got.Faults()))
	return got, got.Save(dir)
}

func (f flags) deliver(head report.Head, found []report.Part) error {
	page := report.Page(head, found)
	if f.write != "" {
		if err := os.WriteFile(f.write, []byte(page), 0o644); err != nil {
			return err
		}
	}
	if f.asJSON {
		if err := report.Print(os.Stdout, head, found); err != nil {
			return err
		}
	} else if f.write == "" {
		fmt.Print(page)
	}
	failed := 0
	// Once more at the end, where the reader of a long log looks first.
	for _, p := range found {
		for _, fault := range p.Faults() {
			f.Say("%s: FAILED: %s", p.Name, fault)
			failed++
		}
	}
	f.Say("%d parts in %s, %d failed", len(found), time.Since(f.began).Round(time.Second), failed)
	if failed > 0 {
		return fmt.Errorf("%d failed", failed)
	}
	return nil
}

func release(bin string) string {
	out, err := exec.Command(bin, "version").Output()
	if err != nil {
		return "unknown"
	}
	_, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	version, _, _ = strings.Cut(version, " ")
	return version
}

func kernel() string {
	var u syscall.Utsname
	if syscall.Uname(&u) != nil {
		return "unknown"
	}
	var b strings.Builder
	for _, c := range u.Release {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return "Linux " + b.String()
}
