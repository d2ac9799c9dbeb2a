package state

import "testing"

func TestRuns(t *testing.T) {
	for _, p := range []string{
		".git/hooks/pre-commit", "sub/.git/hooks/x", ".git/config", ".GIT/Config", ".git/modules/lib/config", ".git/modules/lib/hooks/x", ".gitmodules", "sub/.git",
		".husky/pre-push", ".envrc", ".bashrc", ".vscode/tasks.json", "a.code-workspace", ".idea", ".nvim.lua", "package.json", "web/package.json", ".npmrc", "setup.py",
		"pyproject.toml", "GNUmakefile", "Justfile", "build.rs", ".cargo/config.toml", ".github/workflows/ci.yml", ".gitlab-ci.yml", ".claude/settings.json", "CLAUDE.md",
		"AGENTS.md", ".mcp.json", ".hermes/hooks/x", ".codex/config.toml", ".cursor/mcp.json", ".gemini/settings.json", "opencode.json", ".devcontainer/devcontainer.json",
		".config/systemd/user/x.service", "x.desktop", "crontab", ".pre-commit-config.yaml", "lib/python3/site-packages/x.pth", ".config/pip/pip.conf", ".config/git/config",
		".nvmrc", "rust-toolchain.toml", "web/vite.config.ts", ".Rprofile", "flake.nix",
	} {
		if Runs(p) == "" {
			t.Errorf("%s: got nothing, want a reason", p)
		}
	}
	for _, p := range []string{
		"main.go", "src/app.py", "README.md", ".git/index", ".git/objects/ab/cd", ".git/refs/heads/main", ".gitignore", ".gitattributes", "docs/agents/x.md", "package-lock.json",
		"config", "hooks/x", "bin", "makefile.txt", ".github/CODEOWNERS", ".config/other/x",
	} {
		if by := Runs(p); by != "" {
			t.Errorf("%s: got %q, want nothing", p, by)
		}
	}
}

func TestEveryEntrySaysBy(t *testing.T) {
	for _, h := range handoff {
		if h.what == "" || h.by == "" {
			t.Errorf("entry %+v: got no reason", h)
		}
	}
}

func TestGitConfig(t *testing.T) {
	for config, want := range map[string]gitSetting{
		"[core]\n\thooksPath = tools/hooks\n": {"core", "hookspath", "tools/hooks"}, "[CORE] hookspath=\"./h h\" # x\n": {"core", "hookspath", "./h h"},
		"[includeIf \"gitdir:x\"]\npath = a\\\nb ; c": {"includeif", "path", "ab"}, "# a = b\n[a]\nb=\"c;d\"": {"a", "b", "c;d"},
	} {
		if got := parseGitConfig(config); len(got) != 1 || got[0] != want {
			t.Errorf("%q: got %q, want %q", config, got, want)
		}
	}
	if got := parseGitConfig("[core]\n#x=y\n;a=b\nbare\n"); len(got) != 0 {
		t.Errorf("comments: got %q, want nothing", got)
	}
}
