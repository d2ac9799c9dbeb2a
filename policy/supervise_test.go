package policy

import (
	"strings"
	"testing"
)

func TestSuperviseMistakes(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"unknown service":   {"services:\n    a: {command: [x], after: [mian]}", `there is no service "mian"`},
		"itself":            {"services:\n    a: {command: [x], after: [a]}", "in a circle"},
		"circle":            {"services:\n    a: {command: [x], after: [b]}\n    b: {command: [x], after: [c]}\n    c: {command: [x], after: [b]}", "supervise.services.b.after: it would have"},
		"reserved":          {"services:\n    main: {command: [x]}", "is taken"},
		"no command":        {"services:\n    a: {after: [main]}", "supervise.services.a.command"},
		"pauses":            {"backoff: 10s\n  backoff_max: 5s", "supervise.backoff_max: is shorter"},
		"pauses of one":     {"services:\n    a: {command: [x], backoff: 10s, backoff_max: 5s}", "supervise.services.a.backoff_max: is shorter"},
		"both":              {"restart_status: [75]\n  fatal_status: [78, 75]", "75 is in fatal_status too"},
		"code":              {"fatal_status: [256]", "above the greatest"},
		"restart":           {"restart: on-failrue", `unknown value "on-failrue"`},
		"health elsewhere":  {`health: {url: "http://192.0.2.1:80/"}`, "health url"},
		"health over TLS":   {`health: {url: "https://127.0.0.1/"}`, "health url"},
		"log that is seen":  {`log: {file: "${WORKSPACE}/log"}`, "visible inside"},
		"negative burst":    {"burst: -1", "burst"},
		"unknown variable":  {"services:\n    a: {command: [x], env: {A: \"${NOPE}\"}}", "NOPE"},
		"health of service": {"services:\n    a: {command: [x], health: {url: \"ftp://127.0.0.1\"}}", "supervise.services.a.health.url"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newWorld(t).load("version: 1\nsupervise:\n  " + tc.text + "\n")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestSuperviseIsRead(t *testing.T) {
	p, err := newWorld(t).load(`version: 1
supervise:
  restart: on-failure
  backoff: 500ms
  services:
    dashboard: {command: [hermes, dashboard], after: [main], env: {STATE: "${WORKSPACE}/x"}}
    third: {command: [x], after: [dashboard, main]}
`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Supervise.Services["dashboard"].Env["STATE"], p.Vars["WORKSPACE"]+"/x"; got != want {
		t.Errorf("env: got %q, want %q", got, want)
	}
	if !p.Supervise.Active() {
		t.Error("active: got false, want true")
	}
}
