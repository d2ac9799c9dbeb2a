package everyday

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/npm"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const playwright = `
const {chromium} = require("playwright-core"), fs = require("fs");
(async () => {
  const b = await chromium.launch({executablePath: "/usr/bin/chromium", chromiumSandbox: process.argv[2] === "sandbox"});
  const p = await b.newPage();
  await p.setContent("<button onclick='this.textContent = 6 * 7'>x</button>");
  await p.click("button");
  await p.screenshot({path: "shot.png"});
  console.log(await p.textContent("button"), fs.statSync("shot.png").size > 0);
  await b.close();
})().catch(e => { console.log(/No usable sandbox|spawn/.exec(e.message)?.[0] ?? e.message); process.exit(1); });
`

// TestPlaywright drives a browser: without one of its own it runs in the sandbox
// as it is, and with one it needs the namespaces that hermes-browser opens.
func TestPlaywright(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"node", "chromium"})
	modules := filepath.Join(npm.Require(t, "everyday"), "node_modules")
	work, state := w.Dir(t, "work"), w.Dir(t, "state")
	w.Write(t, filepath.Join(work, "p.cjs"), playwright)
	const more = "filesystem: {read: [%q, \"/etc/chromium?\", \"/etc/chromium.d?\"]}\nenv: {set: {NODE_PATH: %[1]q}}\n"
	for _, c := range []struct {
		name, policy, sandbox string
		exit                  int
		want                  string
	}{
		{"strict", "extends: [builtin:strict]", "", 0, "42 true"},
		{"strict, its own sandbox", "extends: [builtin:strict]", "sandbox", 1, "No usable sandbox"},
		{"hermes-browser, its own sandbox", "extends: [builtin:hermes-browser]", "sandbox", 0, "42 true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := w.PolicyFile(t, "playwright", "version: 1\n"+c.policy+"\n"+fmt.Sprintf(more, modules))
			cmd := w.Wrap(work, policy, "node", "p.cjs", c.sandbox)
			cmd.Env = append(cmd.Env, "HERMES_HOME="+state)
			if got := wraptest.Run(t, cmd, patience); got.Exit != c.exit || strings.TrimSpace(got.Out) != c.want {
				t.Errorf("got exit %d, %q, want %d, %q\n%s", got.Exit, got.Out, c.exit, c.want, got.Err)
			}
			if err := os.RemoveAll(filepath.Join(work, "shot.png")); err != nil {
				t.Fatal(err)
			}
		})
	}
}
