package state

import (
	"path"
	"strings"
	"sync"
)

// match says how an entry of the table is compared with a folded path.
type match int

const (
	name   match = iota // the last part
	tree                // any part: the entry and everything below it
	tail                // the last parts
	ending              // the end of the last part
)

// handoff is the table of what a host executes later, or takes as instructions
// for something that executes: by whom.
var handoff = []struct {
	how  match
	what string
	by   string
}{
	{name, ".git", "git follows it to a repository with its own configuration"},
	{tail, ".git/config", "git runs commands that its configuration names"},
	{name, "commondir", "git takes configuration and hooks from where it points"},
	{name, "config.worktree", "git runs commands that its configuration names"},
	{tree, ".git/hooks", "git runs its hooks"},
	{tail, ".git/info/attributes", "git chooses filters by it"},
	{name, ".gitmodules", "git fetches and configures submodules by it"},
	{name, ".gitconfig", "git runs commands that its configuration names"},
	{tree, ".config/git", "git runs commands that its configuration names"},
	{tree, ".githooks", "git runs its hooks"},
	{tree, ".husky", "git runs its hooks"},
	{name, ".pre-commit-config.yaml", "pre-commit runs what it names"},
	{name, ".pre-commit-hooks.yaml", "pre-commit runs what it names"},
	{name, "lefthook.yml", "lefthook runs what it names"},
	{name, "lefthook.yaml", "lefthook runs what it names"},
	{name, ".lefthook.yml", "lefthook runs what it names"},

	{name, ".bashrc", "the shell runs it"},
	{name, ".bash_profile", "the shell runs it"},
	{name, ".bash_login", "the shell runs it"},
	{name, ".bash_logout", "the shell runs it"},
	{name, ".bash_aliases", "the shell runs it"},
	{name, ".profile", "the shell runs it"},
	{name, ".zshrc", "the shell runs it"},
	{name, ".zshenv", "the shell runs it"},
	{name, ".zprofile", "the shell runs it"},
	{name, ".zlogin", "the shell runs it"},
	{name, ".zlogout", "the shell runs it"},
	{name, ".kshrc", "the shell runs it"},
	{name, ".cshrc", "the shell runs it"},
	{name, ".tcshrc", "the shell runs it"},
	{name, ".inputrc", "the shell binds keys to commands by it"},
	{tree, ".config/fish", "the shell runs it"},
	{name, ".xprofile", "the desktop runs it at login"},
	{name, ".xinitrc", "the desktop runs it at login"},
	{name, ".xsession", "the desktop runs it at login"},
	{tree, ".ssh", "ssh runs commands that its configuration names, and lets keys in"},

	{name, ".envrc", "direnv runs it on entering the directory"},
	{name, ".mise.toml", "mise runs it on entering the directory"},
	{name, "mise.toml", "mise runs it on entering the directory"},
	{tree, ".mise", "mise runs it on entering the directory"},
	{name, ".tool-versions", "mise and asdf choose programs by it"},
	{name, ".autoenv", "autoenv runs it on entering the directory"},
	{name, ".nvmrc", "nvm and the like choose a program by it"},
	{name, ".node-version", "version managers choose a program by it"},
	{name, ".python-version", "version managers choose a program by it"},
	{name, ".ruby-version", "version managers choose a program by it"},
	{name, ".java-version", "version managers choose a program by it"},
	{name, ".sdkmanrc", "sdkman chooses programs by it"},
	{name, "rust-toolchain", "rustup takes cargo and rustc from where it points"},
	{name, "rust-toolchain.toml", "rustup takes cargo and rustc from where it points"},

	{tree, ".vscode", "the editor runs tasks and settings"},
	{ending, ".code-workspace", "the editor runs tasks and settings"},
	{tree, ".idea", "the editor runs tasks and settings"},
	{tree, ".zed", "the editor runs tasks and settings"},
	{tree, ".fleet", "the editor runs tasks and settings"},
	{tree, ".vim", "the editor runs it"},
	{tree, ".nvim", "the editor runs it"},
	{name, ".vimrc", "the editor runs it"},
	{name, ".exrc", "the editor runs it"},
	{name, ".nvimrc", "the editor runs it"},
	{name, ".nvim.lua", "the editor runs it"},
	{tree, ".config/nvim", "the editor runs it"},
	{name, ".dir-locals.el", "the editor runs it"},
	{name, ".emacs", "the editor runs it"},
	{tree, ".emacs.d", "the editor runs it"},
	{ending, ".sublime-project", "the editor runs build systems it defines"},
	{tree, ".devcontainer", "the editor builds and runs it"},
	{name, ".devcontainer.json", "the editor builds and runs it"},

	{name, "package.json", "npm runs its scripts"},
	{name, ".npmrc", "npm takes its settings, with the shell and registry to use"},
	{name, ".yarnrc", "yarn takes its settings"},
	{name, ".yarnrc.yml", "yarn runs the program and plugins it names"},
	{name, ".pnpmfile.cjs", "pnpm runs it"},
	{name, "pnpmfile.js", "pnpm runs it"},
	{name, "bunfig.toml", "bun preloads what it names"},
	{tree, ".yarn", "yarn runs releases and plugins from it"},
	{name, "pyproject.toml", "pip runs the build backend it names"},
	{name, "setup.py", "pip runs it"},
	{name, "setup.cfg", "pip and tools take settings and commands from it"},
	{name, "conftest.py", "pytest runs it"},
	{name, "tox.ini", "tox runs its commands"},
	{name, "noxfile.py", "nox runs it"},
	{name, "sitecustomize.py", "Python runs it at its start"},
	{name, "usercustomize.py", "Python runs it at its start"},
	{ending, ".pth", "Python runs its lines at its start"},
	{name, "pip.conf", "pip takes the index from it"},
	{name, "makefile", "make runs it"},
	{name, "gnumakefile", "make runs it"},
	{ending, ".mk", "make runs it"},
	{name, "cmakelists.txt", "cmake runs its commands"},
	{name, "justfile", "just runs it"},
	{name, "taskfile.yml", "task runs it"},
	{name, "taskfile.yaml", "task runs it"},
	{name, "rakefile", "rake runs it"},
	{name, "gemfile", "bundler runs it"},
	{name, "dockerfile", "docker runs it"},
	{name, "containerfile", "podman runs it"},
	{name, "compose.yaml", "docker runs it"},
	{name, "compose.yml", "docker runs it"},
	{name, "compose.override.yaml", "docker runs it"},
	{name, "compose.override.yml", "docker runs it"},
	{name, "docker-compose.yml", "docker runs it"},
	{name, "docker-compose.yaml", "docker runs it"},
	{name, "docker-compose.override.yml", "docker runs it"},
	{name, "docker-compose.override.yaml", "docker runs it"},
	{name, ".gdbinit", "gdb runs it"},
	{name, ".lldbinit", "lldb runs it"},
	{name, "vagrantfile", "vagrant runs it"},
	{ending, ".config.js", "the tool that it is for runs it, an editor's plugin too"},
	{ending, ".config.cjs", "the tool that it is for runs it, an editor's plugin too"},
	{ending, ".config.mjs", "the tool that it is for runs it, an editor's plugin too"},
	{ending, ".config.ts", "the tool that it is for runs it, an editor's plugin too"},
	{name, ".eslintrc.js", "eslint runs it, an editor's plugin too"},
	{name, ".eslintrc.cjs", "eslint runs it, an editor's plugin too"},
	{name, ".bazelrc", "bazel takes options from it, programs to run among them"},
	{name, "flake.nix", "nix builds it"},
	{name, "shell.nix", "nix builds and enters it"},
	{name, "default.nix", "nix builds it"},
	{name, "procfile", "foreman and the like run it"},
	{name, "tiltfile", "tilt runs it"},
	{name, "meson.build", "meson runs its commands"},
	{name, "sconstruct", "scons runs it"},
	{name, ".irbrc", "irb runs it"},
	{name, ".pryrc", "pry runs it"},
	{name, ".rprofile", "R runs it at its start"},
	{name, ".octaverc", "octave runs it at its start"},
	{name, ".latexmkrc", "latexmk runs it"},
	{name, "build.rs", "cargo runs it"},
	{name, "cargo.toml", "cargo names its build script and dependencies in it"},
	{tree, ".cargo", "cargo takes the linker, runner and wrapper from it"},
	{name, "build.gradle", "gradle runs it"},
	{name, "build.gradle.kts", "gradle runs it"},
	{name, "settings.gradle", "gradle runs it"},
	{name, "settings.gradle.kts", "gradle runs it"},
	{name, "gradle.properties", "gradle takes options of its virtual machine from it"},
	{name, "gradle-wrapper.properties", "gradle fetches and runs what it names"},
	{name, "gradlew", "it is the build's own program"},
	{name, "pom.xml", "maven runs the plugins it names"},
	{tree, ".mvn", "maven takes extensions and options from it"},

	{tree, ".github/workflows", "CI runs it"},
	{tree, ".github/actions", "CI runs it"},
	{name, ".gitlab-ci.yml", "CI runs it"},
	{tree, ".gitlab/ci", "CI runs it"},
	{tree, ".circleci", "CI runs it"},
	{tree, ".buildkite", "CI runs it"},
	{name, "jenkinsfile", "CI runs it"},
	{name, ".travis.yml", "CI runs it"},
	{name, "azure-pipelines.yml", "CI runs it"},
	{name, ".drone.yml", "CI runs it"},
	{name, ".woodpecker.yml", "CI runs it"},

	{tree, ".hermes", "an agent takes it as instructions, settings or programs"},
	{name, ".hermes-wrap.yaml", "hermes-wrap takes it as the project's policy"},
	{tree, ".claude", "an agent takes it as instructions, settings or programs"},
	{name, "claude.md", "an agent takes it as instructions"},
	{name, "claude.local.md", "an agent takes it as instructions"},
	{name, "agents.md", "an agent takes it as instructions"},
	{name, "agents.override.md", "an agent takes it as instructions"},
	{name, "gemini.md", "an agent takes it as instructions"},
	{name, "soul.md", "an agent takes it as instructions"},
	{name, ".mcp.json", "an agent starts the servers it names"},
	{name, "mcp.json", "an agent starts the servers it names"},
	{tree, ".codex", "an agent takes it as instructions, settings or programs"},
	{tree, ".cursor", "an agent takes it as instructions, settings or programs"},
	{name, ".cursorrules", "an agent takes it as instructions"},
	{tree, ".gemini", "an agent takes it as instructions, settings or programs"},
	{tree, ".opencode", "an agent takes it as instructions, settings or programs"},
	{name, "opencode.json", "an agent takes it as instructions, settings or programs"},
	{name, ".aider.conf.yml", "an agent takes it as settings"},
	{name, "copilot-instructions.md", "an agent takes it as instructions"},

	{tree, ".config/systemd", "systemd starts it"},
	{ending, ".service", "systemd starts it where it is installed"},
	{ending, ".timer", "systemd starts it where it is installed"},
	{ending, ".desktop", "the desktop starts it"},
	{tree, ".config/autostart", "the desktop starts it at login"},
	{name, "crontab", "cron runs it"},
	{tree, "cron.d", "cron runs it"},
	{tree, ".config/environment.d", "every program of the session gets its variables"},
}

// programDirs are directories whose programs are found by name.
var programDirs = []string{"bin", "sbin", ".bin", "scripts"}

// index is the table, found by what is compared.
type index struct {
	names, trees, tails map[string]string
	deep                map[string]string // trees of several parts, by the last one
	endings             map[string]string
	above               map[string]bool // directories that entries of several parts begin with
}

// table is the one above, made when it is first needed.
var table = sync.OnceValue(func() index {
	x := index{map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}, map[string]bool{}}
	for _, h := range handoff {
		if first, _, several := strings.Cut(h.what, "/"); several {
			x.above[first] = true
		}
		switch {
		case h.how == name:
			x.names[h.what] = h.by
		case h.how == ending:
			x.endings[h.what] = h.by
		case h.how == tail:
			x.tails[h.what] = h.by
		case strings.Contains(h.what, "/"):
			x.deep[h.what] = h.by
		default:
			x.trees[h.what] = h.by
		}
	}
	return x
})

// Runs says who executes a file of the host later, by its path alone; "" if the
// table does not know.
func Runs(rel string) string {
	p, table := fold(rel), table()
	_, last := split(p)
	if by := table.names[last]; by != "" {
		return by
	}
	short := path.Ext(last)
	long := path.Ext(strings.TrimSuffix(last, short)) + short
	for _, end := range []string{short, long} {
		if by := table.endings[end]; by != "" {
			return by
		}
	}
	for t, by := range table.tails {
		if last == path.Base(t) && (p == t || strings.HasSuffix(p, "/"+t)) {
			return by
		}
	}
	for part := range strings.SplitSeq(p, "/") {
		if by := table.trees[part]; by != "" {
			return by
		}
	}
	return deep(p, last)
}

// deep finds trees of several parts, and what lies in git's own directory: a
// repository within another has its configuration and hooks there too.
func deep(p, last string) string {
	slashed := "/" + p + "/"
	if !strings.Contains(slashed, "/.") && !strings.Contains(slashed, "/cron.d/") {
		return ""
	}
	for t, by := range table().deep {
		if strings.Contains(slashed, "/"+t+"/") {
			return by
		}
	}
	if _, in, ok := strings.Cut(slashed, "/.git/"); ok {
		if last == "config" || strings.Contains(in, "hooks/") {
			return "git runs hooks and commands of its configuration"
		}
	}
	return ""
}

// classify notes for each change why the host would execute it later. there tells
// whether the layer or the host has a path.
func classify(changes []Change, stand standIns, there func(rel string) bool) {
	repository := func(dir string) bool { return there(below(dir, "HEAD")) }
	for i := range changes {
		c := &changes[i]
		if c.Kind == Deleted || c.New.Type == Dir || c.Held != "" {
			continue
		}
		if c.Runs = stand.runs(c.Path); c.Runs != "" {
			continue
		}
		dir, last := split(c.Path)
		up, parent := split(dir)
		switch {
		case c.New.Type == Symlink && stand.above(c.Path):
			c.Runs = "it stands for a directory of what is executed later"
		case last == "config" && repository(dir), parent == "hooks" && repository(up), last == "hooks" && repository(dir):
			c.Runs = "git runs hooks and commands of a repository without a .git"
		case last == "HEAD" && c.Kind == Added && (there(below(dir, "config")) || there(below(dir, "hooks"))):
			c.Runs = "it makes its directory a repository of git"
		case c.New.Type == File && c.New.Mode&0o111 != 0 && inProgramDir(parent):
			c.Runs = "it is a program in a directory that PATH may name"
		case c.New.Type == Symlink && inProgramDir(parent):
			c.Runs = "it stands for a program in a directory that PATH may name"
		}
	}
}

func inProgramDir(dir string) bool {
	for _, d := range programDirs {
		if strings.EqualFold(d, dir) {
			return true
		}
	}
	return false
}
