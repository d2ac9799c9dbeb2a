package supply

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// What is not pinned: a tool of which the newest is taken, an action or image by a
// name that can be moved, something that is downloaded and run.
var loosePatterns = []struct {
	pattern *regexp.Regexp
	what    string
}{
	{regexp.MustCompile(`@(latest|master|main|HEAD|upgrade)\b`), "takes whatever is newest"},
	{regexp.MustCompile(`\bgo (install|run) (-[^ ]+ )*[a-z0-9.]+\.[a-z]+/[^ "'@]+("|'|\s|$)`), "takes a module without a version"},
	{regexp.MustCompile(`(curl|wget)\b[^|\n]*\|\s*(sudo\s+)?(ba|z|da)?sh\b`), "runs what it downloads"},
	{regexp.MustCompile(`\bnpx\s+(-y\s+)?[a-z@]`), "runs a package of any version"},
}

// uses is how a workflow names an action; one of this repository needs no pin.
var (
	uses   = regexp.MustCompile(`^\s*-?\s*uses:\s*["']?([^"'\s#]+)`)
	pinned = regexp.MustCompile(`@[0-9a-f]{40}$`)
)

// Loose tells what in the files can change without a change of this repository.
func Loose(root string, files []string) (found []string) {
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			found = append(found, err.Error())
			continue
		}
		for i, line := range strings.Split(string(b), "\n") {
			for _, what := range looseIn(line) {
				found = append(found, fmt.Sprintf("%s:%d %s: %s", name, i+1, what, strings.TrimSpace(line)))
			}
		}
	}
	return append(found, toolsAgree(root)...)
}

func looseIn(line string) (what []string) {
	for _, p := range loosePatterns {
		if p.pattern.MatchString(line) {
			what = append(what, p.what)
		}
	}
	if m := uses.FindStringSubmatch(line); m != nil && !strings.HasPrefix(m[1], "./") && !pinned.MatchString(m[1]) {
		what = append(what, "uses an action that is not named by its commit")
	}
	return what
}

// tracked lists the files that build, check or release: not documents, which show
// what others may do, and not data of tests.
func tracked(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--", "Makefile", "action.yml", ".ci", ".github", "packaging", "*.sh")
	cmd.Dir = root
	out, err := output(cmd)
	if err != nil {
		return nil, err
	}
	var files []string
	for name := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		switch {
		case name == "", strings.HasSuffix(name, "/go.sum"), strings.HasPrefix(name, "packaging/licences/"), name == "packaging/THIRD_PARTY":
		default:
			files = append(files, name)
		}
	}
	if len(files) < 10 {
		return nil, fmt.Errorf("list the files: got %v only", files)
	}
	return files, nil
}

// toolsAgree compares the versions in .ci/run, which installs tools too, with those
// that have hashes.
func toolsAgree(root string) (wrong []string) {
	ci, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		return []string{err.Error()}
	}
	for tool, module := range map[string]string{"nfpm": "github.com/goreleaser/nfpm/v2", "golangci": "github.com/golangci/golangci-lint/v2"} {
		dir := map[string]string{"golangci": "golangci-lint"}[tool]
		if dir == "" {
			dir = tool
		}
		mod, err := os.ReadFile(filepath.Join(root, "packaging", "tools", dir, "go.mod"))
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		m := regexp.MustCompile(`(?m)^` + tool + `=(\S+)$`).FindSubmatch(ci)
		if m != nil && !strings.Contains(string(mod), module+" "+string(m[1])+" ") {
			wrong = append(wrong, fmt.Sprintf("packaging/tools/%s/go.mod has another version than .ci/run, which says %s", dir, m[1]))
		}
	}
	return wrong
}
