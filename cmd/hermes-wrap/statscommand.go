package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hermes-wrap/hermes-wrap/session"
)

func (c *commandLine) stats() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stats [NAME…]", Short: "Print what runs use of what they may", ValidArgsFunction: c.completeLives,
		Long: "stats prints what live runs use: memory, processor, processes, connections, bytes to servers,\n" +
			"decisions about connections and requests, tokens and money. Without a NAME it prints all of them.\n\n" + sessionHelp,
	}
	watch := cmd.Flags().BoolP("watch", "w", false, "go on, once a second")
	asJSON := cmd.Flags().Bool("json", false, "print JSON; with --watch one array a line")
	cmd.RunE = func(_ *cobra.Command, names []string) error {
		before := map[string]*runStats{}
		for first := true; ; first = false {
			live, err := c.chosen(names, len(names) == 0)
			if err != nil || c.code != 0 && len(live) == 0 {
				return c.did(err)
			}
			if first { // a share of a processor is one of a time
				c.measure(live, before)
				time.Sleep(statsGap)
			}
			all := c.measure(live, before)
			if err := c.showStats(all, *asJSON, *watch); err != nil {
				return err
			}
			if !*watch {
				return nil
			}
			time.Sleep(statsEvery)
		}
	}
	return cmd
}

// statsGap is the time over which "stats" measures the processor, statsEvery
// that of --watch.
const (
	statsGap   = 250 * time.Millisecond
	statsEvery = time.Second
)

// shownStats adds to what a run says what follows from two answers.
type shownStats struct {
	*runStats
	// CPUPercent is of one processor, over the time since the last look.
	CPUPercent float64 `json:"cpu_percent"`
}

// measure asks runs, and replaces what they said before. A run that ended
// meanwhile is left out.
func (c *commandLine) measure(live []session.Entry, before map[string]*runStats) []shownStats {
	all := []shownStats{}
	for _, e := range live {
		a, err := askRun(e, controlRequest{Op: opStats}, controlWord)
		if err == nil {
			err = a.err()
		}
		if err == nil && a.Stats == nil {
			err = errors.New("BUG: the run gave no numbers")
		}
		if err != nil {
			if !isGone(e) {
				c.code = c.voice.fail(fmt.Errorf("stats of %s: %w", e.Name, err))
			}
			continue
		}
		s := shownStats{runStats: a.Stats}
		if was := before[a.Run]; was != nil && a.Stats.Time.After(was.Time) {
			s.CPUPercent = max(0, 100*(a.Stats.CPU-was.CPU)/a.Stats.Time.Sub(was.Time).Seconds())
		}
		before[a.Run] = a.Stats
		all = append(all, s)
	}
	return all
}

func (c *commandLine) showStats(all []shownStats, asJSON, watch bool) error {
	switch {
	case asJSON && watch:
		return json.NewEncoder(os.Stdout).Encode(all)
	case asJSON:
		return printJSON(all)
	case watch && isTerminal(os.Stdout):
		fmt.Print("\x1b[H\x1b[J")
	}
	t := newTable("NAME", "MEMORY", "CPU", "TIME", "PIDS", "CONNS", "SENT", "RECEIVED", "ALLOWED", "DENIED", "TOKENS", "MONEY")
	for _, s := range all {
		n := s.Network
		t.row(s.Name, of(size(s.Memory), size(s.MemoryLimit), s.MemoryLimit > 0), fmt.Sprintf("%.0f%%", s.CPUPercent), cpuTime(s.CPU),
			of(strconv.Itoa(s.Pids), strconv.Itoa(s.PidsLimit), s.PidsLimit > 0),
			of(strconv.FormatInt(n.Connections, 10), strconv.Itoa(s.ConnectionsLimit), s.ConnectionsLimit > 0),
			of(size(n.BytesOut), size(n.BytesOutLimit), n.BytesOutLimit > 0), size(n.BytesIn),
			strconv.FormatInt(n.Allowed, 10), strconv.FormatInt(n.Denied, 10),
			of(strconv.FormatInt(n.InputTokens+n.OutputTokens, 10), strconv.FormatInt(n.TokensLimit, 10), n.TokensLimit > 0),
			of(money(n.Money), money(n.MoneyLimit), n.MoneyLimit > 0))
	}
	return t.flush()
}

// of puts a number and its limit together.
func of(used, limit string, limited bool) string {
	if !limited {
		return used
	}
	return used + "/" + limit
}

func money(m float64) string { return strconv.FormatFloat(m, 'f', 4, 64) }

func cpuTime(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(10 * time.Millisecond).String()
}

// size is a number of bytes in powers of 1024, as policies write it.
func size(n int64) string {
	f, unit := float64(n), ""
	for _, u := range []string{"K", "M", "G", "T"} {
		if f < 1000 {
			break
		}
		f, unit = f/1024, u
	}
	if unit == "" || f >= 100 || f == float64(int64(f)) {
		return strconv.FormatFloat(f, 'f', 0, 64) + unit
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + unit
}
