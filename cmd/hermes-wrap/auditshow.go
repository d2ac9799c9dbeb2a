package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// auditFilter says which lines are shown. Empty fields match everything.
type auditFilter struct {
	run, verdict, host, rule, grep string
	kinds                          []string
	since                          time.Time
}

func (f auditFilter) match(e audit.Event, line []byte) bool {
	switch {
	case !strings.HasPrefix(e.Run, f.run),
		f.verdict != "" && string(e.Verdict) != f.verdict,
		f.rule != "" && e.Rule != f.rule,
		f.host != "" && !hostMatches(f.host, e.Host),
		e.Time.Before(f.since):
		return false
	case len(f.kinds) > 0 && !slices.Contains(f.kinds, string(e.Kind)),
		len(f.kinds) == 0 && e.Kind.Bookkeeping():
		return false
	}
	return f.grep == "" || bytes.Contains(bytes.ToLower(line), []byte(strings.ToLower(f.grep)))
}

// hostMatches takes a host, or *.example.org for all below it.
func hostMatches(pattern, host string) bool {
	if below, ok := strings.CutPrefix(pattern, "*."); ok {
		return strings.HasSuffix(host, "."+below)
	}
	return pattern == host
}

// sinceWhen reads how long ago (10m), or when: a date or a time of RFC 3339.
func sinceWhen(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("read --since %q: want how long ago (10m), a date or a time", text)
}

// auditView prints what passes the filter.
type auditView struct {
	out    io.Writer
	filter auditFilter
	// raw passes lines through; events prints them in the short form of our own.
	raw, events bool
	color       bool
	width       int // of the terminal; 0: lines are not cut
}

// render gives a line as it is shown, or nil.
func (v auditView) render(line []byte) []byte {
	e, err := audit.Decode(line)
	if err != nil || !v.filter.match(e, line) {
		return nil
	}
	switch {
	case v.raw:
		return append(bytes.Clone(line), '\n')
	case v.events:
		b, err := json.Marshal(e)
		if err != nil {
			return nil
		}
		return append([]byte(audit.Escape(string(b))), '\n')
	}
	return []byte(v.row(e) + "\n")
}

func (v auditView) row(e audit.Event) string {
	head := fmt.Sprintf("%s  %-5s  %-10s  ", e.Time.Local().Format(time.DateTime), e.Verdict, audit.Escape(string(e.Kind)))
	text := head + audit.Escape(strings.Join(slices.DeleteFunc([]string{whatOf(e), whyOf(e)}, func(s string) bool { return s == "" }), "  "))
	if v.width > 0 {
		text = cut(text, v.width)
	}
	code := map[audit.Verdict]string{audit.Allow: "32", audit.Deny: "31"}[e.Verdict]
	if code == "" && (e.Kind == audit.KindUpstream || e.Kind == audit.KindFault || e.Kind == audit.KindDropped) {
		code = "33"
	}
	if v.color && code != "" {
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
	return text
}

// whatOf says what the event was about.
func whatOf(e audit.Event) string {
	host := e.Host
	if host == "" {
		host = e.Addr
	}
	if e.Port != 0 && e.Port != 443 && host != "" {
		host += ":" + strconv.Itoa(int(e.Port))
	}
	switch {
	case e.Kind == audit.KindInbound && e.Addr != "":
		host = strings.TrimSpace("from " + e.Addr + " " + e.Method + e.Path)
	case e.Method != "":
		host = e.Method + " " + host + e.Path
	case e.Kind == audit.KindLaunch:
		host = strings.TrimSpace(e.Command + " under " + e.Policy)
	case e.Kind == audit.KindExit && e.ExitCode != nil:
		host = "exit " + strconv.Itoa(*e.ExitCode)
	case e.Kind == audit.KindService:
		host = e.Service
		if e.ExitCode != nil {
			e.Operation += " " + strconv.Itoa(*e.ExitCode)
		}
	case e.Kind == audit.KindDropped:
		host = strconv.FormatInt(e.Count, 10) + " events"
	}
	parts := []string{host, e.Operation, e.Credential, e.Model}
	if e.InputTokens+e.OutputTokens > 0 {
		parts = append(parts, fmt.Sprintf("%d+%d tokens", e.InputTokens, e.OutputTokens))
	}
	if e.Status != 0 {
		parts = append(parts, "→ "+strconv.Itoa(e.Status))
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// whyOf gives the reason and the rule.
func whyOf(e audit.Event) string {
	var b strings.Builder
	b.WriteString(e.Reason)
	if e.Rule != "" {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("[" + strings.TrimSpace(e.Rule+" "+e.Pos) + "]")
	}
	if len(e.Degraded) > 0 {
		b.WriteString(" degraded: " + strings.Join(e.Degraded, ", "))
	}
	return b.String()
}

// cut shortens a text to so many columns.
func cut(s string, width int) string {
	used := 0
	for i, r := range s {
		wide := 1
		if r >= 0x1100 { // most of what is there is as wide as two
			wide = 2
		}
		if used+wide > width-1 && len(s)-i > 1 {
			return s[:i] + "…"
		}
		used += wide
	}
	return s
}

func (c *commandLine) auditShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show [FILE…]", Short: "Print the record for people, or the lines that match",
		Long: "show prints the record with what was rotated away from it, oldest first, and with --follow\n" +
			"what comes. It checks nothing: see hermes-wrap audit verify.",
	}
	var v auditView
	var since string
	var follow bool
	var last int
	f := cmd.Flags()
	f.StringVar(&v.filter.run, "run", "", "only the run whose identifier begins so")
	f.StringVar(&v.filter.verdict, "verdict", "", "only allow or deny")
	f.StringSliceVar(&v.filter.kinds, "kind", nil, "only these kinds (launch, request, …)")
	f.StringVar(&v.filter.host, "host", "", "only this `HOST`, or *.example.org for all below it")
	f.StringVar(&v.filter.rule, "rule", "", "only what this rule decided")
	f.StringVar(&v.filter.grep, "grep", "", "only lines with this `TEXT`, in any case")
	f.StringVar(&since, "since", "", "only from then on: 10m, 2h, a date or a time")
	f.IntVarP(&last, "last", "n", 0, "only the last `N` of them (0: all)")
	f.BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	f.BoolVar(&v.raw, "json", false, "print the lines as they are")
	f.BoolVar(&v.events, "events", false, "print JSON with short names, one event a line")
	_ = cmd.RegisterFlagCompletionFunc("verdict", cobra.FixedCompletions([]string{string(audit.Allow), string(audit.Deny)}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(auditKinds(), cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"run", "host", "rule", "grep", "since", "last"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return c.reading(cmd, func(path string, files []string) (err error) {
		if v.filter.since, err = sinceWhen(since, time.Now()); err != nil {
			return err
		}
		if err := v.filter.check(); err != nil {
			return err
		}
		v.out, v.color = os.Stdout, newVoice(os.Stdout).color
		if size, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ); err == nil {
			v.width = int(size.Col)
		}
		tail := audit.NewTail(path, files)
		defer func() { _ = tail.Close() }()
		if err := v.print(tail, last); err != nil || !follow {
			return err
		}
		for { // until a signal ends it
			time.Sleep(followEvery)
			if err := v.print(tail, 0); err != nil {
				return err
			}
		}
	})
}

// followEvery is how often --follow looks for new lines.
const followEvery = 200 * time.Millisecond

func auditKinds() (names []string) {
	for _, k := range audit.Kinds() {
		names = append(names, string(k))
	}
	return names
}

// check refuses words that match nothing.
func (f auditFilter) check() error {
	if f.verdict != "" && f.verdict != string(audit.Allow) && f.verdict != string(audit.Deny) {
		return fmt.Errorf("read --verdict %q: want allow or deny", f.verdict)
	}
	for _, k := range f.kinds {
		if !slices.Contains(auditKinds(), k) {
			return fmt.Errorf("read --kind %q: want one of %s", k, strings.Join(auditKinds(), ", "))
		}
	}
	return nil
}

// print prints what is there, or the last of it.
func (v auditView) print(tail *audit.Tail, last int) error {
	var kept [][]byte
	for {
		line, err := tail.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		shown := v.render(line)
		switch {
		case shown == nil:
		case last > 0:
			if kept = append(kept, shown); len(kept) > last {
				kept = kept[1:]
			}
		default:
			if _, err := v.out.Write(shown); err != nil {
				return err
			}
		}
	}
	for _, b := range kept {
		if _, err := v.out.Write(b); err != nil {
			return err
		}
	}
	return nil
}
