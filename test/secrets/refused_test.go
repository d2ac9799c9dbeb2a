package secrets

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// TestLaunchRefuses: what would show a secret inside, or cannot be one, stops the
// launch, and is not printed (D69, D70).
func TestLaunchRefuses(t *testing.T) {
	b := newBench(t)
	visible := filepath.Join(b.dir, "token")
	outside := filepath.Join(b.out, "token")
	open := filepath.Join(b.out, "open-token")
	link := filepath.Join(b.out, "link")
	for path, mode := range map[string]os.FileMode{visible: 0o600, outside: 0o600, open: 0o644} {
		b.Write(t, path, secret+"\n")
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(visible, link); err != nil {
		t.Fatal(err)
	}
	b.Write(t, filepath.Join(b.dir, "bin/helper"), "#!/bin/sh\necho "+secret+"\n")
	if err := os.Chmod(filepath.Join(b.dir, "bin/helper"), 0o755); err != nil {
		t.Fatal(err)
	}
	source := func(text string) string {
		return strings.Replace(fromEnv, "{env: GITHUB_TOKEN}", text, 1)
	}
	writable := "workspace: {path: ., access: write}\n"
	tests := []struct {
		name, credentials, more string
		env                     []string
		argv                    string
		want                    string // of the message; "" when it must run
	}{
		{name: "control, env", credentials: fromEnv, env: []string{"GITHUB_TOKEN=" + secret}},
		{name: "control, file", credentials: source("{file: " + outside + "}")},
		{name: "control, command", credentials: source("{command: [cat, " + outside + "]}")},
		{name: "control, own variable is let in", credentials: fromEnv, more: "env: {allow: [GITHUB_TOKEN], secret: [GITHUB_TOKEN]}\n", env: []string{"GITHUB_TOKEN=" + secret}},
		{name: "unset", credentials: fromEnv, want: "not set"},
		{name: "line end", credentials: fromEnv, env: []string{"GITHUB_TOKEN=" + secret + "\r\nX: y"}, want: "control character"},
		{name: "escape", credentials: fromEnv, env: []string{"GITHUB_TOKEN=" + secret + "\x1b[0m"}, want: "control character"},
		{name: "short", credentials: fromEnv, env: []string{"GITHUB_TOKEN=ghp_Zk9"}, want: "shorter"},
		{name: "another variable holds it", credentials: fromEnv, more: "env: {allow: [OTHER]}\n", env: []string{"GITHUB_TOKEN=" + secret, "OTHER=x-" + secret}, want: `"OTHER"`},
		{name: "env.set holds it", credentials: fromEnv, more: "env: {set: {OTHER: " + secret + "}}\n", env: []string{"GITHUB_TOKEN=" + secret}, want: `"OTHER"`},
		{name: "an argument holds it", credentials: fromEnv, env: []string{"GITHUB_TOKEN=" + secret}, argv: "echo " + secret, want: "argument"},
		{name: "file in the workspace", credentials: source("{file: " + visible + "}"), more: writable, want: "visible inside"},
		{name: "file behind a link", credentials: source("{file: " + link + "}"), more: writable, want: "visible inside"},
		{name: "file that all can read", credentials: source("{file: " + open + "}"), want: "chmod"},
		{name: "command in the workspace", credentials: source("{command: [" + filepath.Join(b.dir, "bin/helper") + "]}"), more: writable, want: "inside"},
		{name: "command found in the workspace", credentials: source("{command: [helper]}"), more: writable, env: []string{"PATH=" + filepath.Join(b.dir, "bin") + ":" + b.Path}, want: "from inside"},
		{name: "script in the workspace", credentials: source("{command: [sh, " + filepath.Join(b.dir, "bin/helper") + "]}"), more: writable, want: "inside"},
		{name: "command that fails", credentials: source("{command: [sh, -c, 'cat " + outside + " >&2; exit 1']}"), want: "exit status 1"},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			policy := b.policy(t, fmt.Sprint("refused-", i), tt.credentials, "")
			text, err := os.ReadFile(policy)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(t, policy, string(text)+tt.more)
			argv := tt.argv
			if argv == "" {
				argv = "env; echo ran"
			}
			run := b.inside(t, policy, argv, tt.env...)
			if strings.Contains(run.Out+run.Err, "Zk9wQx7VbN2m") {
				t.Errorf("got the secret in %s%s", run.Out, run.Err)
			}
			switch {
			case tt.want == "" && (run.Exit != 0 || !strings.Contains(run.Out, "ran")):
				t.Errorf("got exit %d, want it to run\n%s", run.Exit, run.Err)
			case tt.want != "" && (run.Exit != 125 || !strings.Contains(run.Err, tt.want)):
				t.Errorf("got exit %d and %q, want 125 and a message about %q", run.Exit, run.Err, tt.want)
			}
		})
	}
}

// TestRotation: another secret in the file, or from the command, is used without
// a restart, and the placeholder inside stays.
func TestRotation(t *testing.T) {
	const second = "ghp_SecondSecretSecondSecretSecondSecret"
	b := newBench(t)
	b.RequireCommands(t, []string{"curl"})
	for name, source := range map[string]string{"file": "{file: %s}", "command": "{command: [cat, %s]}"} {
		t.Run(name, func(t *testing.T) {
			b.site.insist(secret)
			token := filepath.Join(b.out, name)
			put := func(text string) {
				b.Write(t, token+".new", text)
				if err := os.Chmod(token+".new", 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(token+".new", token); err != nil {
					t.Fatal(err)
				}
			}
			put(secret)
			policy := b.policy(t, "rotation-"+name, strings.Replace(fromEnv, "{env: GITHUB_TOKEN}", fmt.Sprintf(source, token), 1), "")
			text, err := os.ReadFile(policy)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(t, policy, string(text)+"workspace: {path: ., access: write}\n")
			ready, turned := filepath.Join(b.dir, name+".ready"), filepath.Join(b.dir, name+".turned")
			script := fmt.Sprintf(`ask() { curl -sS -H "Authorization: Bearer $GITHUB_TOKEN" %s; }
ask; touch %s; while ! test -e %s; do sleep 0.1; done
for i in $(seq 100); do if ask | grep welcome; then exit 0; fi; sleep 0.1; done; exit 3`, b.url("github.test"), ready, turned)
			done := make(chan wraptest.Ended, 1)
			go func() { done <- b.inside(t, policy, script) }()
			for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
				if _, err := os.Stat(ready); err == nil || time.Now().After(deadline) {
					break
				}
			}
			b.site.insist(second)
			put(second)
			b.Write(t, turned, "")
			run := <-done
			if run.Exit != 0 || strings.Count(run.Out, "welcome") != 2 {
				t.Errorf("got exit %d and %q, want two welcomes\n%s", run.Exit, run.Out, run.Err)
			}
			for _, s := range []string{secret, second} {
				b.mustNotHold(t, run, s)
			}
		})
	}
}
