// Package action runs action.yml as GitHub's runner would: its steps, with the
// inputs put in place of their expressions and the runner's files for outputs.
package action

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

func TestMain(m *testing.M) { os.Exit(wraptest.Main(m)) }

type step struct {
	ID    string            `yaml:"id"`
	Shell string            `yaml:"shell"`
	Dir   string            `yaml:"working-directory"`
	Env   map[string]string `yaml:"env"`
	Run   string            `yaml:"run"`
}

type action struct {
	Inputs map[string]struct {
		Default  string `yaml:"default"`
		Required bool   `yaml:"required"`
	} `yaml:"inputs"`
	Outputs map[string]struct {
		Value string `yaml:"value"`
	} `yaml:"outputs"`
	Runs struct {
		Using string `yaml:"using"`
		Steps []step `yaml:"steps"`
	} `yaml:"runs"`
}

var expression = regexp.MustCompile(`\$\{\{\s*([a-z._-]+)\s*\}\}`)

// runner is the stand-in for GitHub's.
type runner struct {
	wraptest.World
	t      *testing.T
	dir    string // the checkout of the user's repository
	files  string // the runner's own
	values map[string]string
}

func (r *runner) fill(s string) string {
	return expression.ReplaceAllStringFunc(s, func(m string) string {
		name := expression.FindStringSubmatch(m)[1]
		v, ok := r.values[name]
		if !ok {
			r.t.Fatalf("expression: got %q, want one that the runner knows", name)
		}
		return v
	})
}

// run runs the action with these inputs, and gives the exit code and the outputs.
func (r *runner) run(inputs map[string]string) (int, map[string]string, string) {
	t := r.t
	text, err := os.ReadFile(filepath.Join("..", "..", "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var a action
	if err := yaml.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	r.values = map[string]string{"runner.temp": r.files, "github.action_path": source}
	for name, in := range a.Inputs {
		v, given := inputs[name]
		if !given && in.Required {
			t.Fatalf("input %q: got none, want one", name)
		}
		if !given {
			v = r.fill(in.Default)
		}
		r.values["inputs."+name] = v
	}
	var said strings.Builder
	for _, s := range a.Runs.Steps {
		if expression.MatchString(s.Run) {
			t.Fatalf("step %q: its script holds an expression, which could be more script", s.ID)
		}
		output, summary := filepath.Join(r.files, s.ID+".output"), filepath.Join(r.files, "step-summary")
		for _, f := range []string{output, summary} {
			r.Write(t, f, "")
		}
		script := filepath.Join(r.files, s.ID+".sh")
		r.Write(t, script, s.Run)
		cmd := r.Bare(filepath.Join(r.dir, r.fill(s.Dir)), "bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script)
		cmd.Env = append(cmd.Env, "GITHUB_OUTPUT="+output, "GITHUB_STEP_SUMMARY="+summary, "GITHUB_ENV="+output+".env")
		for name, v := range s.Env {
			cmd.Env = append(cmd.Env, name+"="+r.fill(v))
		}
		ended := wraptest.Run(t, cmd, 2*time.Minute)
		said.WriteString(ended.Out + ended.Err)
		r.collect(s.ID, output)
		if ended.Exit != 0 {
			return ended.Exit, r.outputs(a), said.String()
		}
	}
	return 0, r.outputs(a), said.String()
}

func (r *runner) collect(id, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			r.values["steps."+id+".outputs."+name] = v
		}
	}
}

func (r *runner) outputs(a action) map[string]string {
	out := map[string]string{}
	for name, o := range a.Outputs {
		out[name] = r.values[expression.FindStringSubmatch(o.Value)[1]]
	}
	return out
}

func TestAction(t *testing.T) {
	w := wraptest.New(t)
	r := &runner{World: w, t: t, dir: w.Dir(t, "repository"), files: w.Dir(t, "runner")}
	w.Write(t, filepath.Join(r.dir, "read.py"), "import urllib.request\ntry:\n    urllib.request.urlopen('http://denied.test/')\nexcept Exception as e:\n    print(e)\n")
	policy := w.PolicyFile(t, "ci", "version: 1\nextends: [builtin:hermes-ci]\n")
	given := func(command string) map[string]string {
		return map[string]string{"command": command, "policy": policy, "binary": w.Bin}
	}

	code, out, said := r.run(given("python3 read.py; echo done > result.txt"))
	if code != 0 || out["exit-code"] != "0" {
		t.Fatalf("got exit %d and outputs %v\n%s", code, out, said)
	}
	var s struct {
		ExitCode int `json:"exit_code"`
		Denials  []struct{ Host string }
	}
	text, err := os.ReadFile(out["summary"])
	if err != nil || json.Unmarshal(text, &s) != nil || s.ExitCode != 0 || len(s.Denials) == 0 || s.Denials[0].Host != "denied.test" {
		t.Errorf("summary: got %s, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "result.txt")); err != nil {
		t.Error(err)
	}

	if code, out, said := r.run(given("exit 7")); code != 7 || out["exit-code"] != "7" {
		t.Errorf("got exit %d and outputs %v, want 7\n%s", code, out, said)
	}

	// What the command says cannot set the job's outputs or environment.
	forge := `for f in "${GITHUB_OUTPUT:-}" "${GITHUB_ENV:-}" ` + r.files + `/run.output; do echo "exit-code=0" >> "$f" && echo forged; done; exit 9`
	if code, out, said := r.run(given(strings.Replace(forge, "exit 9", "true; exit 9", 1))); code != 9 || out["exit-code"] != "9" || strings.Contains(said, "forged\n") {
		t.Errorf("got exit %d and outputs %v, want 9 and nothing forged\n%s", code, out, said)
	}

	// An input is data: it cannot become script outside.
	mark := filepath.Join(r.files, "escaped")
	in := given("true")
	in["policy"] = `x"; touch ` + mark + `; "$(touch ` + mark + `)`
	if code, _, said := r.run(in); code != 125 {
		t.Errorf("a policy of that name: got exit %d, want 125\n%s", code, said)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("an input was run as script outside")
	}
	control := exec.Command("bash", "-c", `echo "`+in["policy"]+`"`)
	_ = control.Run() // what is left of the echo fails
	if _, err := os.Stat(mark); err != nil {
		t.Error("control: the input, pasted into a script, must have been run")
	}
}
