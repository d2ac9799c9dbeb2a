// Command bench prints the table of docs/budgets.md: what the sandbox costs,
// as ratios of things measured side by side in one run.
//
//	HERMES_WRAP_BIN=bin/hermes-wrap go run ./bench [--json] [--write FILE] [--calm 10m] [--only GROUP]
//
// Everything is measured as an ordinary user. Root names one in
// HERMES_TEST_USER; the benchmark then runs itself again as that user and
// stays behind only to read the memory of processes whose user may not.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// options are what the command line asks for.
type options struct {
	json  bool
	write string
	calm  time.Duration
	only  string
}

// group is a set of rows that are measured together. Those of one section stand
// in one table.
type group struct {
	name, section string
	measure       func(*shop) ([]row, error)
}

var groups = []group{
	{"launch", "sandbox", measureLaunch},
	{"crowd", "sandbox", measureCrowd},
	{"cow", "sandbox", measureCow},
	{"memory", "sandbox", measureMemory},
	{"calls", "sandbox", measureCalls},
	{"work", "sandbox", measureWork},
	{"connections", "network", measureConnections},
	{"bytes", "network", measureBytes},
	{"https", "network", measureHTTPS},
	{"peers", "network", measurePeers},
	{"decide", "network", measureDecide},
	{"state", "state", measureState},
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		exitWith(probe(os.Args[2:]))
	}
	var o options
	flag.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	flag.StringVar(&o.write, "write", "", "also write the tables into the generated sections of this file")
	flag.DurationVar(&o.calm, "calm", 0, "how long to wait for a load average under 2.5 before starting")
	flag.StringVar(&o.only, "only", "", "measure these groups only: "+groupNames()+"; several with commas")
	flag.Parse()
	exitWith(run(o))
}

func groupNames() string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return strings.Join(names, ", ")
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(o options) error {
	bin := os.Getenv("HERMES_WRAP_BIN")
	if bin == "" {
		return errors.New("HERMES_WRAP_BIN is not set: it names the binary to measure")
	}
	if os.Getuid() == 0 {
		return runAsUser(o, os.Getenv("HERMES_TEST_USER"))
	}
	s, err := newShop(bin)
	if err != nil {
		return err
	}
	defer s.close()
	waitForCalm(o.calm)
	r := newReport()
	for _, g := range groups {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), g.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "bench: measuring", g.name)
		before := loadAverage()
		rows, err := g.measure(s)
		if err != nil {
			rows = append(rows, row{What: g.name, Figure: "not measured: " + err.Error()})
		}
		for i := range rows {
			rows[i].Load, rows[i].Section = before, g.section
		}
		r.Rows = append(r.Rows, rows...)
	}
	return r.deliver(o)
}

func waitForCalm(patience time.Duration) {
	for end := time.Now().Add(patience); time.Now().Before(end) && loadAverage() >= 2.5; {
		time.Sleep(2 * time.Second)
	}
}
