package main

import (
	"archive/tar"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// workRounds and workRepeats say how often each job runs: so many sandboxes,
// and so many times in each.
const workRounds, workRepeats = 5, 6

// job is a command whose time inside is compared with its time bare; {i} in
// its words is a number that is different each time.
type job struct {
	what   string
	needs  string
	budget float64 // how much slower it may be
	words  []string
	make   func(dir string) error
}

func jobs(dir string) []job {
	gocache := "GOCACHE=" + filepath.Join(dir, "gocache")
	build := fmt.Sprintf("echo 'package p; const C = {i}' > p/p.go; env %s GOFLAGS=-mod=mod GOTOOLCHAIN=local CGO_ENABLED=0 go build -o out .", gocache)
	return []job{
		{"`git status`, 2,000 files", "git", 1.05, []string{"git", "-C", filepath.Join(dir, "repo"), "status", "--short"}, makeRepository},
		{"`go build`, one package changed", "go", 1.05, []string{"sh", "-ec", "cd " + filepath.Join(dir, "module") + "; " + build}, makeModule},
		{"untar, 2,000 files", "tar", 1.05, []string{"tar", "xf", filepath.Join(dir, "a.tar"), "--one-top-level=" + filepath.Join(dir, "out{i}")}, makeArchive},
	}
}

func measureWork(s *shop) ([]row, error) {
	var rows []row
	for _, j := range jobs(s.dir) {
		what, budget := "work: "+j.what, fmt.Sprintf("%.2f × bare", j.budget)
		ratio, figure, err := s.compare(j)
		if err != nil {
			rows = append(rows, row{What: what, Budget: budget, Figure: "not measured: " + err.Error()})
			continue
		}
		rows = append(rows, within(what, budget, figure, ratio, j.budget))
	}
	return append(rows, row{What: "work: `npm ci`", Budget: "1.05 × bare", Figure: "not measured: it needs a registry"}), nil
}

// compare runs a job bare and inside, by turns. The launch is not counted.
func (s *shop) compare(j job) (ratio float64, figure string, err error) {
	if _, err := exec.LookPath(j.needs); err != nil {
		return 0, "", fmt.Errorf("%s is not present", j.needs)
	}
	if err := j.make(s.dir); err != nil {
		return 0, "", err
	}
	var bare, in series
	for round := range workRounds {
		probe := func(side int) []string {
			first := fmt.Sprint((2*round + side) * workRepeats)
			return append([]string{s.self, "probe", "time", first, fmt.Sprint(workRepeats)}, j.words...)
		}
		b, err := s.numbers(probe(0)...)
		if err != nil {
			return 0, "", err
		}
		i, err := s.numbers(s.inside(s.policy, probe(1)...)...)
		if err != nil {
			return 0, "", err
		}
		bare, in = append(bare, b...), append(in, i...)
		leftovers, _ := filepath.Glob(filepath.Join(s.dir, "out*"))
		for _, dir := range leftovers {
			_ = os.RemoveAll(dir)
		}
	}
	ratio = in.median() / bare.median()
	return ratio, fmt.Sprintf("%.2f × by median, %.2f × by minimum (%s against %s)", ratio, in.min()/bare.min(), in.ms(), bare.ms()), nil
}

func makeRepository(dir string) error {
	repo := filepath.Join(dir, "repo")
	for i := range 2000 {
		sub := filepath.Join(repo, fmt.Sprintf("d%02d", i%40))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%d", i)), []byte(fmt.Sprint(i)), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "c"}} {
		cmd := exec.Command("git", append([]string{"-C", repo}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

func makeModule(dir string) error {
	module := filepath.Join(dir, "module")
	for name, text := range map[string]string{
		"go.mod":  "module example.org/m\n\ngo 1.22\n",
		"main.go": "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.org/m/p\"\n)\n\nfunc main() { fmt.Println(p.C) }\n",
		"p/p.go":  "package p\n\nconst C = 0\n",
	} {
		path := filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	cmd := exec.Command("go", "build", "-o", "out", ".") // fills the cache
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOCACHE="+filepath.Join(dir, "gocache"), "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}

func makeArchive(dir string) error {
	f, err := os.Create(filepath.Join(dir, "a.tar"))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w := tar.NewWriter(f)
	body := make([]byte, 4096)
	for i := range 2000 {
		h := &tar.Header{Name: fmt.Sprintf("d%02d/f%d", i%40, i), Mode: 0o644, Size: int64(len(body))}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(body); err != nil {
			return err
		}
	}
	return w.Close()
}
