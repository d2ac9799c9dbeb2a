package escape

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Settings are what the table is run with.
type Settings struct {
	Bin      string   // the binary under test
	Table    string   // the directory of the table
	Programs string   // a directory of compiled programs; empty: compile them
	Lean     bool     // a command that the machine lacks is no fault
	Compile  bool     // compile the programs there and do no more
	Cases    []string // patterns of IDs; none: all
	Accounts []string // kinds; none: all that can be had
	Where    []string // configurations; none: those of each case
	User     string   // the ordinary account
	Seed     int64
	Short    bool
	Thin     bool // as root a third, see thinned
	Keep     bool // leave the directories of the runs
	Verbose  bool
	Sandbox  string // another one in our place, see peersOf
	Tools    string // a directory with other sandboxes
	Template string // that command line
	Workers  int    // worlds at the same time; 0: one
}

// Record is all that was found.
type Record struct {
	Seed   int64
	Kernel string
	// Peers describes other sandboxes by configuration, and Left counts the cases
	// that are not for them.
	Peers map[string]string `json:",omitempty"`
	Left  int               `json:",omitempty"`
	// Thinned counts the runs of root's that were left out for their time, and of
	// other sandboxes the cases.
	Thinned int `json:",omitempty"`
	Began   time.Time
	Took    time.Duration
	Results []Result
}

// Main is the command line; it gives the exit code: 0 when nothing escaped and
// nothing failed, 1 when something did, 2 when the table could not be run.
func Main(args []string) int {
	switch {
	case len(args) == 1 && args[0] == worldArg:
		return serveWorld()
	case len(args) == 1 && args[0] == victimArg:
		return serveVictim()
	case len(args) > 1 && args[0] == refuseArg:
		return refuse(args[1:])
	}
	s, file, err := flags(args)
	if err != nil {
		return 2
	}
	if s.Compile {
		return s.compile()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	record, err := s.run(ctx, func(r Result) { s.print(os.Stdout, r) })
	if err == nil && file != "" {
		err = record.save(file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "escapes:", err)
		return 2
	}
	bad := 0
	counts := map[Status]int{}
	for _, r := range record.Results {
		counts[r.Status]++
		if r.bad() {
			bad++
		}
	}
	fmt.Fprintf(os.Stdout, "seed %d: %d contained, %d escaped, %d failed, %d not exercised; %v\n", record.Seed, counts[StatusContained],
		counts[StatusEscaped], counts[StatusFailed], counts[StatusNotExercised], record.Took.Round(time.Second))
	if bad > 0 {
		return 1
	}
	return 0
}

// compile makes the programs for a machine without a compiler.
func (s Settings) compile() int {
	cases, err := Load(s.Table)
	if err == nil {
		_, err = compile(context.Background(), cases, s.Programs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "escapes:", err)
		return 2
	}
	return 0
}

// bad tells whether a result keeps the proof from being green.
func (r Result) bad() bool {
	switch r.Status {
	case StatusContained, StatusDropped:
		return false
	case StatusNotExercised:
		return !strings.HasPrefix(r.Reason[0], "kernel: ") && !strings.HasPrefix(r.Reason[0], "machine: ")
	}
	return true
}

func flags(args []string) (Settings, string, error) {
	var s Settings
	f := flag.NewFlagSet("escapes", flag.ContinueOnError)
	f.StringVar(&s.Bin, "bin", "bin/hermes-wrap", "the binary under test")
	f.StringVar(&s.Table, "table", "testdata/escapes", "the directory of the table")
	f.StringVar(&s.Programs, "programs", "", "a directory of programs compiled before")
	f.BoolVar(&s.Lean, "lean", false, "a machine with little on it: that it lacks a command is no fault")
	f.BoolVar(&s.Compile, "compile", false, "compile the programs into the directory that --programs names, and do no more")
	f.StringVar(&s.User, "user", "hwdev", "the ordinary account, where root runs this")
	f.Int64Var(&s.Seed, "seed", time.Now().UnixNano()%1e9, "decides what is generated")
	f.BoolVar(&s.Short, "short", false, "fewer variants")
	f.BoolVar(&s.Thin, "thin", false, "on a slow machine: a part of what root runs beside the ordinary account, and of the cases for other sandboxes")
	f.BoolVar(&s.Keep, "keep", false, "leave the directories of the runs")
	f.BoolVar(&s.Verbose, "v", false, "say how each twin escaped and what failed runs printed")
	list := func(name string, to *[]string, usage string) {
		f.Func(name, usage, func(v string) error { *to = append(*to, strings.Split(v, ",")...); return nil })
	}
	list("case", &s.Cases, "IDs of cases, with *: A10,B*")
	list("account", &s.Accounts, "user, root")
	list("where", &s.Where, "configurations instead of those that the cases ask for; every: all")
	f.StringVar(&s.Sandbox, "sandbox", "", "another sandbox in our place: a name, several with commas, all, or a command line with {dir} and {home}")
	f.StringVar(&s.Tools, "tools", "", "a directory with other sandboxes")
	f.IntVar(&s.Workers, "workers", 4, "worlds at the same time")
	file := f.String("json", "", "write everything to a file")
	err := f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected %q", f.Args())
		fmt.Fprintln(os.Stderr, "escapes:", err)
	}
	return s, *file, err
}

func (s Settings) print(out io.Writer, r Result) {
	line := fmt.Sprintf("%-5s %-5s %-12s %-13s", r.ID, r.Account, r.Configuration, r.Status)
	if r.Variant != "" {
		line += fmt.Sprintf(" [%q]", r.Variant)
	}
	if len(r.Reason) > 0 {
		line += " " + strings.Join(r.Reason, "; ")
	}
	if s.Verbose {
		line += fmt.Sprintf(" (%d ms)", r.Millis)
		if len(r.Twin) > 0 {
			const most = 6
			line += fmt.Sprintf("\n      twin, %d ways: %s", r.Ways, strings.Join(r.Twin[:min(most, len(r.Twin))], "; "))
		}
	}
	if r.Output != "" && (s.Verbose || r.bad()) {
		line += "\n      " + strings.ReplaceAll(r.Output, "\n", "\n      ")
	}
	fmt.Fprintln(out, line)
}

func (r Record) save(file string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// run runs the table and hands over each result as it comes.
func (s Settings) run(ctx context.Context, say func(Result)) (Record, error) {
	record := Record{Seed: s.Seed, Kernel: dotted(kernelVersion()), Began: time.Now()}
	tell := func(r Result) {
		record.Results = append(record.Results, r)
		say(r)
	}
	if s.Sandbox != "" {
		s.Where, s.Template = peersOf(s.Sandbox)
		if len(s.Accounts) == 0 {
			s.Accounts = []string{"user"} // what they are made for
		}
		record.Peers = map[string]string{}
		for _, name := range s.Where {
			record.Peers[name] = peers[name].Says
		}
	}
	jobs, err := s.jobs(tell, &record)
	if err != nil {
		return record, err
	}
	o, clean, err := s.orders(ctx, jobs)
	if err != nil {
		return record, err
	}
	defer clean()
	err = s.share(ctx, o, jobs, tell)
	record.Took = time.Since(record.Began)
	return record, err
}

// jobs is what is to be done; what cannot be exercised is said at once.
func (s Settings) jobs(say func(Result), r *Record) ([]job, error) {
	cases, err := Load(s.Table)
	if err != nil {
		return nil, err
	}
	who, err := accounts(s.User)
	if err != nil {
		return nil, err
	}
	var jobs []job
	for _, c := range cases {
		if !wanted(c, s.Cases) {
			continue
		}
		if s.Sandbox != "" && c.Only != "" {
			r.Left++
			continue
		}
		if s.Sandbox != "" && s.Thin && source(c.ID+" others", s.Seed).IntN(3) != 0 {
			r.Thinned++
			continue
		}
		variants, err := variantsOf(c, s.Seed, map[bool]int{false: 8, true: 2}[s.Short])
		if err != nil {
			return nil, err
		}
		if s.Short {
			variants = s.fewer(c.ID, variants, 2)
		}
		if len(s.Where) > 1 && s.Sandbox != "" {
			variants = variants[:1] // enough to compare several by
		}
		for _, a := range who {
			if c.As != "both" && c.As != a.Kind || len(s.Accounts) > 0 && !slices.Contains(s.Accounts, a.Kind) {
				continue
			}
			j := job{c, a, s.configurations(c), variants}
			if c.As == "both" && a.Kind == "root" && len(who) > 1 {
				if s.Short && source(c.ID+" root", s.Seed).IntN(8) != 0 {
					continue // a short run takes an eighth of them as root too
				}
				if s.Thin {
					all := j.runs()
					j = s.thinned(j)
					r.Thinned += all - j.runs()
				}
			}
			if j.Configurations = s.there(j, say); len(j.Configurations) == 0 {
				continue
			}
			if why := missing(c, s.Lean); why != "" {
				say(Result{ID: c.ID, Account: a.Kind, Configuration: strings.Join(j.Configurations, " "), Status: StatusNotExercised, Reason: []string{why}})
				continue
			}
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// runs is how often a job runs something inside.
func (j job) runs() int { return len(j.Configurations) * len(j.Variants) }

// thinned is what a slow machine has time for as root, beside the same as an
// ordinary account: of the cases about requests and policies, which the same code
// judges whoever starts it, a third, under the reference and the weaker tier; of all
// else every case under the reference and a third under each other policy; of the
// variants a few. The seed chooses.
func (s Settings) thinned(j job) job {
	out := func(what string) bool { return source(j.Case.ID+" root "+what, s.Seed).IntN(3) != 0 }
	judged := strings.ContainsAny(j.Case.ID[:1], "DF")
	j.Configurations = slices.DeleteFunc(slices.Clone(j.Configurations), func(name string) bool {
		whole := name == "strict" || judged && name == weak
		return judged && out("") || !whole && out(name)
	})
	j.Variants = s.fewer(j.Case.ID, j.Variants, 3)
	return j
}

// fewer leaves most of the fixed variants, spread over all of them from one that
// the seed chooses, and the random ones.
func (s Settings) fewer(id string, all []variant, most int) []variant {
	var fixed, out []variant
	for _, v := range all {
		if !v.Random {
			fixed = append(fixed, v)
		} else {
			out = append(out, v)
		}
	}
	if len(fixed) <= most {
		return all
	}
	first := source(id+" variants", s.Seed).IntN(len(fixed))
	for i := range most {
		out = append(out, fixed[(first+i*len(fixed)/most)%len(fixed)])
	}
	return out
}

// there leaves out other sandboxes that this machine does not have.
func (s Settings) there(j job, say func(Result)) []string {
	var out []string
	for _, name := range j.Configurations {
		if why := peers[name].missing(s.Tools); why != "" {
			say(Result{ID: j.Case.ID, Account: j.Account.Kind, Configuration: name, Status: StatusNotExercised, Reason: []string{"machine: " + why}})
			continue
		}
		out = append(out, name)
	}
	return out
}

func (s Settings) configurations(c Case) []string {
	if len(s.Where) > 0 {
		c.Where = s.Where
	}
	all := configurations(c)
	if !s.Short || len(s.Where) > 0 {
		return all
	}
	thin := source(c.ID+" weak", s.Seed).IntN(4) == 0
	few := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name != "strict" && (name != weak || !thin) })
	if len(few) == 0 {
		few = all[:1]
	}
	return few
}

// orders makes the directories of the runs and compiles the programs.
func (s Settings) orders(ctx context.Context, jobs []job) (orders, func(), error) {
	var made []string
	clean := func() {
		for _, dir := range made {
			if !s.Keep {
				removeAll(dir)
			}
		}
	}
	bin, err := filepath.Abs(s.Bin)
	table, err2 := filepath.Abs(s.Table)
	o := orders{Bin: bin, Seed: s.Seed, Short: s.Short, Keep: s.Keep, Base: map[string]string{}, Template: s.Template, Programs: map[string]string{}}
	for _, name := range s.Where {
		if p, ok := peers[name]; ok {
			o.Programs[name] = p.program(s.Tools)
		}
	}
	errs := []error{err, err2}
	var cases []Case
	for _, j := range jobs {
		cases = append(cases, j.Case)
		if o.Base[j.Account.Kind] != "" {
			continue
		}
		dir, err := base(j.Account, filepath.Join(table, "lib"))
		errs = append(errs, err)
		made = append(made, dir)
		if s.Keep {
			fmt.Fprintln(os.Stderr, "escapes: runs are in", dir)
		}
		o.Base[j.Account.Kind] = dir
	}
	programs := s.Programs
	if programs == "" {
		programs, err = os.MkdirTemp("", "escapes-")
		made, errs = append(made, programs), append(errs, err)
	}
	o.Compiled, err = compile(ctx, cases, programs)
	if err := errors.Join(append(errs, err)...); err != nil {
		clean()
		return o, nil, err
	}
	return o, clean, nil
}

// base makes the directory that an account's runs lie in, with the libraries.
func base(a account, lib string) (string, error) {
	dir, err := os.MkdirTemp(a.Dir, "escapes-")
	if err != nil {
		return "", err
	}
	m := maker{}
	m.chmod(dir, 0o755)
	to := filepath.Join(dir, "lib")
	m.dir(to)
	files, err := os.ReadDir(lib)
	if err != nil && !os.IsNotExist(err) {
		return dir, err
	}
	for _, f := range files {
		if f.Type().IsRegular() {
			m.add(install(filepath.Join(lib, f.Name()), filepath.Join(to, f.Name()), 0o755))
		}
	}
	self, err := os.Executable()
	m.add(err)
	m.add(install(self, filepath.Join(dir, "escapes"), 0o755))
	m.own(dir, a)
	return dir, errors.Join(m.errs...)
}
