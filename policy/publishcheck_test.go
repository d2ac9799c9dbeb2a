package policy

import (
	"errors"
	"strings"
	"testing"
)

func TestPublishRefusals(t *testing.T) {
	cases := []struct {
		name, entries string
		want          []string // nil: accepted
	}{
		{"loopback", `["8080:80", "127.0.0.2:8080:81", "[::1]:8080:82"]`, nil},
		{"beyond, short", `["192.0.2.1:8080:80"]`, []string{`"192.0.2.1:8080" is not a loopback address`, "expose: true"}},
		{"every address", `["0.0.0.0:8080:80"]`, []string{"is not a loopback address"}},
		{"every address of IPv6", `["[::]:8080:80"]`, []string{"is not a loopback address"}},
		{"exposed", `[{listen: "0.0.0.0:8080", to: "80", expose: true}]`, nil},
		{"the API server, no key", `[{listen: "0.0.0.0:8642", to: "8642", expose: true}]`, []string{"exposes port 8642", "write require_key: API_SERVER_KEY"}},
		{"from is no key", `[{listen: "0.0.0.0:8642", to: "8642", expose: true, from: [10.0.0.0/8]}]`, []string{"exposes port 8642"}},
		{"another variable", `[{listen: "0.0.0.0:8642", to: "8642", expose: true, require_key: OTHER_KEY}]`, []string{"exposes port 8642"}},
		{"its own variable", `[{listen: "0.0.0.0:8642", to: "8642", expose: true, require_key: API_SERVER_KEY}]`, nil},
		{"a token", `[{listen: "0.0.0.0:8642", to: "8642", expose: true, bearer: {file: /etc/t}}]`, nil},
		{"the API server on loopback", `["8642:8642"]`, nil},
		{"webhooks", `[{listen: "0.0.0.0:1", to: "8644", expose: true}]`, []string{"exposes port 8644"}},
		{"webhooks with a secret", `[{listen: "0.0.0.0:1", to: "8644", expose: true, require_key: WEBHOOK_SECRET}]`, nil},
		{"the dashboard", `[{listen: "0.0.0.0:1", to: "9119", expose: true}]`, []string{"exposes port 9119", "asks for no login"}},
		{"TLS without a key", `[{listen: "1", to: "2", tls: {cert: /etc/c}}]`, []string{"TLS needs a certificate and its key"}},
		{"TLS without anything", `[{listen: "1", to: "2", tls: {}}]`, []string{"TLS needs a certificate and its key"}},
		{"a token from nowhere", `[{listen: "1", to: "2", bearer: {}}]`, []string{"names no source"}},
		{"a token from two places", `[{listen: "1", to: "2", bearer: {env: A, file: /b}}]`, []string{"names 2 sources"}},
		{"from at a Unix socket", `[{listen: /run/x, to: "2", from: [10.0.0.1]}]`, []string{"has no meaning for a Unix socket"}},
		{"twice", `["8080:80", "127.0.0.1:8080:81"]`, []string{"is listened on by the entry at"}},
		{"twice, by every address", `[{listen: "0.0.0.0:8080", to: "80", expose: true}, "8080:81"]`, []string{"is listened on by the entry at"}},
		{"twice, by IPv6 for both", `["8080:81", {listen: "[::]:8080", to: "80", expose: true}]`, []string{"is listened on by the entry at"}},
		{"two families", `[{listen: "0.0.0.0:8080", to: "80", expose: true}, "[::1]:8080:81"]`, nil},
		{"twice, a path", `[{listen: /run/x, to: "1"}, {listen: /run/x, to: "2"}]`, []string{"is listened on by the entry at"}},
		{"one name for two", `[{name: a, listen: "1", to: "1"}, {name: a, listen: "2", to: "2"}]`, []string{`the name "a" is taken`}},
		{"a negative bound", `[{listen: "1", to: "2", max_connections: -1}]`, []string{"max_connections"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := newWorld(t).load("version: 1\nnetwork: {publish: " + c.entries + "}\n")
			if c.want == nil {
				if err != nil {
					t.Errorf("got %v, want it accepted", err)
				}
				return
			}
			if err == nil {
				t.Fatal("got it accepted")
			}
			text := err.Error()
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want problems", err)
			}
			for _, p := range problems {
				text += "\n" + p.Hint
				if p.Pos.Line == 0 {
					t.Errorf("%q has no place", p.What)
				}
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("got %q, want %q in it", text, want)
				}
			}
		})
	}
}

func TestClearTokenIsWarnedOf(t *testing.T) {
	for text, want := range map[string]int{
		`[{listen: "0.0.0.0:1", to: "2", expose: true, bearer: {file: /etc/t}}]`:                                   1,
		`[{listen: "0.0.0.0:1", to: "2", expose: true, bearer: {file: /etc/t}, tls: {cert: /etc/c, key: /etc/k}}]`: 0,
		`[{listen: "1", to: "2", bearer: {file: /etc/t}}]`:                                                         0,
	} {
		p := newWorld(t).mustLoad("version: 1\nnetwork: {publish: " + text + "}\n")
		got := 0
		for _, w := range p.Warnings {
			if strings.Contains(w.What, "in the clear") {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: got %d warnings, want %d", text, got, want)
		}
	}
}

func TestCheckKey(t *testing.T) {
	for value, want := range map[string]string{
		"":                                 "is not set",
		"0123456789abcde":                  "has 15 characters",
		"changeme-changeme":                "place holder",
		"CHANGE_ME_PLEASE":                 "place holder",
		"your-api-key-goes-here":           "place holder",
		"<your api key here>":              "nobody filled in",
		"${API_SERVER_KEY}":                "nobody filled in",
		"placeholder-secret-token":         "place holder",
		"aaaaaaaaaaaaaaaaaaaaaaaa":         "1 different",
		"abababababababababab":             "2 different",
		"1234567890123456":                 "place holder",
		"xxxxxxxxxxxxxxxxxxxx":             "different",
		"password12345678":                 "place holder",
		" 1f0c6ab8d3e94572b0a1c2d3e4f5061": "space",
		"1f0c6ab8d3e94572":                 "",
		"hermes-key-1f0c6ab8d3e94572":      "",
		"correct horse battery staple":     "",
		"Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA==": "",
	} {
		got := CheckKey(value)
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", value, got, want)
		}
	}
}

func TestPublishZeroValueIsExposed(t *testing.T) {
	if !(Publish{}).Exposed() {
		t.Error("an entry that listens nowhere counts as loopback")
	}
	if got := (Publish{From: []string{"nonsense"}}).Prefixes(); len(got) != 1 {
		t.Errorf("got %v: an empty list would let everybody in", got)
	}
}
