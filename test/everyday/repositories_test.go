package everyday

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

// gitPrelude stands before each script; the private home has no identity.
const gitPrelude = `
export GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
git config --global user.name n; git config --global user.email e@example.org; git config --global init.defaultBranch main
`

// hub makes $H/hub.git with one commit, and a clone of it, $H/clone.
const hub = `
git init -q --bare hub.git; git clone -q hub.git clone 2>/dev/null; cd clone; echo one >f; git add f; git commit -qm one; git push -q origin HEAD:main; cd ..
git -C clone fetch -q; git -C clone branch -q -u origin/main
`

// refusals tries what would have git run a program on the host.
const refusals = `
try() { "$@" 2>/dev/null && echo "done: $1 ${@: -1}" || true; }
put() { echo x >"$1"; }
`

// repositories are reports of people who started in a repository of some shape.
// $H is a directory of the case's own, outside of the workspace.
var repositories = []struct {
	name   string
	needs  []string
	setup  string // bare, in $H
	dir    string // the workspace, below $H
	policy string // what stands below "extends: [builtin:strict]"
	script string // inside, in the workspace
	want   string
	fails  string // in what it prints on stderr when it fails; "" when it does not
	check  string // bare, in $H
	after  string
}{
	{
		name: "linked worktree", setup: hub + `git -C clone worktree add -q ../wt -b side`, dir: "wt",
		policy: `filesystem: {write: ["$H/clone/.git", "$H/hub.git"]}`,
		script: refusals + `git status --short; echo two >g; git add g; git commit -qm two; git push -q origin side
			try put $H/clone/.git/hooks/pre-commit; try git config x.y z; try git -C $H/clone config x.y z; try put .git; try rm -f .git; try mv .git aside
			try put $H/clone/.git/worktrees/wt/commondir; git log --format=%s`,
		want:  "two\none",
		check: `git -C hub.git log --format=%s side; git -C clone rev-parse side origin/side | uniq | wc -l; git -C wt status --short; ls clone/.git/hooks | grep -v sample || true`,
		after: "two\none\n1",
	},
	{
		name: "linked worktree alone", setup: hub + `git -C clone worktree add -q ../wt -b side`, dir: "wt",
		script: `git status`, fails: "not a git repository", check: `git -C wt status --short; ls -A wt`, after: ".git\nf",
	},
	{
		name: "clone", setup: hub, dir: "clone",
		policy: `filesystem: {write: ["$H/hub.git"]}`,
		script: refusals + `echo two >>f; git commit -qam two; git push -q; git rev-parse HEAD origin/main | uniq | wc -l; git status --short --branch
			try put .git/hooks/pre-commit; try git config x.y z; try mv .git aside; try mv .git/hooks .git/other`,
		want: "1\n## main...origin/main", check: `git -C hub.git log --format=%s main; git -C clone fsck`, after: "two\none",
	},
	{
		name: "clone whose remote may not be written", setup: hub, dir: "clone",
		policy: `filesystem: {read: ["$H/hub.git"]}`,
		script: `git checkout -q -b side; echo two >>f; git commit -qam two; git push -q origin side`, fails: "unable to",
		check: `git -C hub.git for-each-ref --format='%(refname)'; git -C clone for-each-ref --format='%(refname)' refs/remotes/origin/side`, after: "refs/heads/main",
	},
	{
		name: "folder of repositories", setup: `mkdir many; git init -q many/a; git init -q many/b`, dir: "many",
		script: `cd a; echo 1 >f; git add f; git commit -qm one; git log --format=%s`, want: "one",
		check: `ls -A many; git -C many/a status --short`, after: "a\nb",
	},
	{
		name: "repository on another disk", setup: hub + `mkdir disk; mv clone/.git disk/there; ln -s ../disk/there clone/.git`, dir: "clone",
		policy: `filesystem: {write: ["$H/disk/there"]}`,
		script: refusals + `echo two >>f; git commit -qam two; git log --format=%s; try git config x.y z; try put .git/hooks/pre-commit
			try put $H/disk/there/hooks/pre-commit; try mv $H/disk/there/hooks $H/disk/there/other`,
		want: "two\none", check: `git -C clone log --format=%s; ls disk/there/hooks | grep -v sample || true`, after: "two\none",
	},
	{
		name: "submodule", dir: "clone",
		setup: hub + `git init -q lib; (cd lib; echo l >l; git add l; git commit -qm lib); cd clone; git -c protocol.file.allow=always submodule --quiet add ../lib lib; git commit -qm sub`,
		script: refusals + `git submodule status | cut -c42-; git -C lib log --format=%s; echo x >>f; git commit -qam three; git log -1 --format=%s
			try put .git/modules/lib/hooks/pre-commit; try git -C lib config x.y z`,
		want: "lib (heads/main)\nlib\nthree", check: `git -C clone log -1 --format=%s; git -C clone status --short; git -C clone/lib status --short`, after: "three",
	},
	{
		name: "commit in a submodule", dir: "clone",
		setup:  hub + `git init -q lib; (cd lib; echo l >l; git add l; git commit -qm lib); cd clone; git -c protocol.file.allow=always submodule --quiet add ../lib lib; git commit -qm sub`,
		script: `cd lib; echo x >>l; git commit -qam x`, fails: "Read-only file system", check: `git -C clone/lib log --format=%s`, after: "lib",
	},
	{
		name: "signed commit", setup: hub, dir: "clone", needs: []string{"gpg"},
		script: `git config --global commit.gpgsign true; echo two >>f; git commit -qam two 2>&1 | grep -o 'failed to sign' || true
			git -c commit.gpgsign=false commit -qam two; git log --format=%s`,
		want: "failed to sign\ntwo\none", check: `git -C clone log --format=%s`, after: "two\none",
	},
	{
		name: "dotfiles that are links", needs: []string{"stow"}, dir: "clone",
		setup:  hub + `mkdir -p dotfiles/git home; printf '[alias]\n\tsaid = log --format=%%s\n' >dotfiles/git/.gitconfig; stow -d dotfiles -t home git; test -L home/.gitconfig`,
		policy: `filesystem: {read: ["$H/home/.gitconfig"]}`,
		script: `export GIT_CONFIG_GLOBAL=$H/home/.gitconfig; git said; ls -A $H; echo x >>$H/home/.gitconfig 2>/dev/null || echo refused`,
		want:   "one\nclone\ndotfiles\nhome\nrefused", check: `readlink home/.gitconfig; grep -c x home/.gitconfig || true`, after: "../dotfiles/git/.gitconfig\n0",
	},
}

func TestRepositories(t *testing.T) {
	w := wraptest.New(t)
	w.RequireCommands(t, []string{"git"})
	for _, c := range repositories {
		t.Run(c.name, func(t *testing.T) {
			w.RequireCommands(t, c.needs)
			name := strings.ReplaceAll(c.name, " ", "-")
			h := w.Dir(t, name)
			fill := strings.NewReplacer("$H", h).Replace
			bare := func(script string) string {
				t.Helper()
				got := wraptest.Run(t, w.Bare(h, "bash", "-euc", gitPrelude+fill(script)), patience)
				if got.Exit != 0 {
					t.Fatalf("bare: got exit %d\n%s\n%s", got.Exit, got.Out, got.Err)
				}
				return strings.TrimSpace(got.Out)
			}
			bare(c.setup)
			policy := w.PolicyFile(t, name, "version: 1\nextends: [builtin:strict]\n"+fill(c.policy)+"\n")
			got := wraptest.Run(t, w.Wrap(filepath.Join(h, c.dir), policy, "bash", "-euc", gitPrelude+fill(c.script)), patience)
			switch failed := got.Exit != 0; {
			case failed != (c.fails != "") || !strings.Contains(got.Err, c.fails):
				t.Errorf("inside: got exit %d, want %q\n%s\n%s", got.Exit, c.fails, got.Out, got.Err)
			case strings.TrimSpace(got.Out) != c.want:
				t.Errorf("inside: got %q, want %q\n%s", got.Out, c.want, got.Err)
			}
			if after := bare(c.check); after != c.after {
				t.Errorf("afterwards on the host: got %q, want %q", after, c.after)
			}
			if _, err := os.Lstat(filepath.Join(h, c.dir, "aside")); err == nil {
				t.Error("got .git moved away, want it kept")
			}
		})
	}
}
