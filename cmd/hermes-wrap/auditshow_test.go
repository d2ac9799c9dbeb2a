package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hermes-wrap/hermes-wrap/audit"
)

// shown writes events to a record and gives what a view prints of them.
func shown(t *testing.T, v auditView, events ...audit.Event) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := audit.Open(path, "0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := log.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	v.out = &out
	tail := audit.NewTail(path, []string{path})
	defer tail.Close()
	if err := v.print(tail, 0); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Whatever an agent or a server chose does nothing to the terminal, in any of
// the three forms.
func TestAuditShowEscapes(t *testing.T) {
	hostile := "a\x1b]52;c;aGk=\x07b\u202ec\u009b2Jd\ne"
	e := audit.Event{
		Kind: audit.KindRequest, Verdict: audit.Deny, Host: hostile, Path: hostile, Method: hostile, Rule: hostile, Pos: hostile, Reason: hostile,
		Operation: hostile, Credential: hostile, Model: hostile,
	}
	for name, v := range map[string]auditView{"people": {}, "lines": {raw: true}, "events": {events: true}, "narrow": {width: 60}} {
		t.Run(name, func(t *testing.T) {
			got := shown(t, v, e)
			if strings.Count(got, "\n") != 1 || !strings.Contains(got, `\u001b`) && name != "narrow" {
				t.Errorf("got %q, want one line with what was escaped", got)
			}
			for _, r := range strings.TrimSuffix(got, "\n") {
				if r < 0x20 || r >= 0x7f && r != '…' {
					t.Errorf("got %U in %q, want it escaped", r, got)
				}
			}
		})
	}
}

// A line that somebody without a key added may have any kind.
func TestAuditShowEscapesKinds(t *testing.T) {
	got := auditView{}.row(audit.Event{Kind: "x\x1b[2J\r"})
	if strings.ContainsAny(got, "\x1b\r") || !strings.Contains(got, `\u001b`) {
		t.Errorf("got %q, want the kind escaped", got)
	}
}

func TestAuditShowFitsTheTerminal(t *testing.T) {
	long := audit.Event{Kind: audit.KindConnection, Verdict: audit.Allow, Host: strings.Repeat("host.", 60) + "example", Reason: strings.Repeat("漢", 80)}
	short := audit.Event{Kind: audit.KindConnection, Verdict: audit.Allow, Host: "a"}
	for _, width := range []int{50, 80, 200, 400} {
		for line := range strings.Lines(shown(t, auditView{width: width}, long, short)) {
			columns := 0
			for _, r := range strings.TrimSuffix(line, "\n") {
				columns += 1 + map[bool]int{true: 1}[r == '漢']
			}
			if columns > width {
				t.Errorf("width %d: got %d columns", width, columns)
			}
		}
	}
	if got := shown(t, auditView{}, long); utf8.RuneCountInString(got) < 380 {
		t.Errorf("no terminal: got %d characters, want nothing cut", utf8.RuneCountInString(got))
	}
}

func TestAuditShowColours(t *testing.T) {
	for verdict, code := range map[audit.Verdict]string{audit.Allow: "\x1b[32m", audit.Deny: "\x1b[31m"} {
		e := audit.Event{Kind: audit.KindConnection, Verdict: verdict, Host: "a.example"}
		if got := shown(t, auditView{color: true}, e); !strings.HasPrefix(got, code) {
			t.Errorf("%s: got %q, want it to begin with %q", verdict, got, code)
		}
		if got := shown(t, auditView{}, e); strings.Contains(got, "\x1b") {
			t.Errorf("%s: got %q, want no colour", verdict, got)
		}
	}
}

func TestAuditFilters(t *testing.T) {
	events := []audit.Event{
		{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Kind: audit.KindConnection, Verdict: audit.Allow, Host: "old.example"},
		{Kind: audit.KindRequest, Verdict: audit.Deny, Host: "a.b.example", Method: "GET", Path: "/Secret/plans", Rule: "r1"},
		{Kind: audit.KindRequest, Verdict: audit.Allow, Host: "b.example", Method: "PUT", Path: "/x", Rule: "r2"},
	}
	for name, c := range map[string]struct {
		filter auditFilter
		want   int
	}{
		"nothing":       {auditFilter{}, 3},
		"verdict":       {auditFilter{verdict: "deny"}, 1},
		"kinds":         {auditFilter{kinds: []string{"request", "launch"}}, 2},
		"host":          {auditFilter{host: "b.example"}, 1},
		"below":         {auditFilter{host: "*.b.example"}, 1},
		"below a label": {auditFilter{host: "*.example"}, 3},
		"rule":          {auditFilter{rule: "r2"}, 1},
		"rule's part":   {auditFilter{rule: "r"}, 0},
		"text":          {auditFilter{grep: "secret/PLANS"}, 1},
		"run":           {auditFilter{run: "0123"}, 3},
		"another run":   {auditFilter{run: "9"}, 0},
		"since":         {auditFilter{since: time.Now().Add(-time.Hour)}, 2},
		"joined":        {auditFilter{verdict: "allow", kinds: []string{"request"}, grep: "put"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := shown(t, auditView{filter: c.filter, events: true}, events...)
			if n := strings.Count(got, "\n"); n != c.want {
				t.Errorf("got %d events, want %d: %s", n, c.want, got)
			}
			for line := range strings.Lines(got) {
				var e audit.Event
				if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind == "" {
					t.Errorf("got %q (%v), want an event", line, err)
				}
			}
		})
	}
}

func TestSinceWhen(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "2026-11-29": time.Date(2026, 11, 29, 0, 0, 0, 0, time.Local),
		"2026-11-29 10:11:12": time.Date(2026, 11, 29, 10, 11, 12, 0, time.Local), "2026-11-29T10:11:12Z": time.Date(2026, 11, 29, 10, 11, 12, 0, time.UTC),
	} {
		if got, err := sinceWhen(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v (%v), want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"yesterday", "10", "2026-13-01"} {
		if got, err := sinceWhen(text, now); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}
