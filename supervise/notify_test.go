package supervise

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseNotification(t *testing.T) {
	for text, want := range map[string]Notification{
		"READY=1":                          {Ready: true},
		"READY=1\nSTATUS=up\nMAINPID=17\n": {Ready: true, Status: "up", MainPid: 17},
		"STOPPING=1":                       {Stopping: true},
		"RELOADING=1\nMONOTONIC_USEC=5":    {Reloading: true, Ignored: []string{"MONOTONIC_USEC"}},
		"WATCHDOG=1":                       {Watchdog: "1"},
		"WATCHDOG=trigger":                 {Watchdog: "trigger"},
		"EXTEND_TIMEOUT_USEC=30000000":     {Extend: 30_000_000},
		"STATUS=a\x1b[2Jb":                 {Status: "a?[2Jb"},
		"FDSTORE=1\nFDNAME=x\nX_OWN=y":     {Ignored: []string{"FDSTORE", "FDNAME", "X_OWN"}},
	} {
		got, err := ParseNotification([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "READY", "=1", "ready=1", "READY=1\nnonsense", "READY=2", "WATCHDOG=0", "EXTEND_TIMEOUT_USEC=-1", "EXTEND_TIMEOUT_USEC=1s", "MAINPID=x",
		"STATUS=\xff", "STATUS=a\x00b", strings.Repeat("x", MaxNotification) + "=1",
	} {
		if got, err := ParseNotification([]byte(text)); err == nil {
			t.Errorf("%.40q: got %+v, want an error", text, got)
		}
	}
}

func TestRelay(t *testing.T) {
	n, err := ParseNotification([]byte("READY=1\nSTOPPING=1\nSTATUS=x\nWATCHDOG=1\nEXTEND_TIMEOUT_USEC=5\nMAINPID=17\nFDSTORE=1\nRELOADING=1"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := n.Relay(true), "READY=1\nSTOPPING=1\nSTATUS=x\nWATCHDOG=1\nEXTEND_TIMEOUT_USEC=5"; got != want {
		t.Errorf("ending: got %q, want %q", got, want)
	}
	if got, want := n.Relay(false), "READY=1\nSTATUS=x\nWATCHDOG=1\nEXTEND_TIMEOUT_USEC=5"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What is passed on is text of ours: no message can bring in another line.
func FuzzRelay(f *testing.F) {
	f.Add([]byte("READY=1\nSTATUS=x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := ParseNotification(b)
		if err != nil {
			return
		}
		for line := range strings.SplitSeq(n.Relay(true), "\n") {
			key, _, _ := strings.Cut(line, "=")
			switch key {
			case "", "READY", "STOPPING", "STATUS", "WATCHDOG", "EXTEND_TIMEOUT_USEC":
			default:
				t.Errorf("got %q passed on, want only known keys", line)
			}
		}
	})
}
