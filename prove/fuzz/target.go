package fuzz

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

// tags are those of every build of the repository.
const tags = "seccomp netgo osusergo"

// pkg is a package with fuzz targets.
type pkg struct {
	dir, rel, path string
	bin            string // its tests, built to be fuzzed and to count what they cover
	// holds is what each target's comment says, by name.
	holds map[string]string
}

// target is one fuzz target.
type target struct {
	pkg    *pkg
	name   string
	holds  string
	result result
}

// file is the package in the name of a file.
func (p *pkg) file() string { return strings.ReplaceAll(p.rel, string(filepath.Separator), "_") }

// corpus is where inputs that reached something new are kept.
func (p *pkg) corpus(o report.Options) string { return filepath.Join(o.Work, "corpus", p.file()) }

func (t *target) key() string { return filepath.ToSlash(t.pkg.rel) + " " + t.name }

// command is a command of Go's in the checkout.
func command(ctx context.Context, o report.Options, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = o.Root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	return cmd
}

func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return string(out), nil
}

// discover reads which packages have targets, and what their comments promise.
func discover(ctx context.Context, o report.Options) ([]*pkg, error) {
	const format = `{{$d := .Dir}}{{$p := .ImportPath}}{{range .TestGoFiles}}{{$d}}	{{$p}}	{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$d}}	{{$p}}	{{.}}{{"\n"}}{{end}}`
	out, err := output(command(ctx, o, "list", "-tags", tags, "-f", format, "./..."))
	if err != nil {
		return nil, err
	}
	var all []*pkg
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 {
			continue
		}
		holds, err := promises(filepath.Join(fields[0], fields[2]))
		if err != nil {
			return nil, err
		}
		if len(holds) == 0 {
			continue
		}
		i := slices.IndexFunc(all, func(p *pkg) bool { return p.path == fields[1] })
		if i < 0 {
			rel, err := filepath.Rel(o.Root, fields[0])
			if err != nil {
				return nil, err
			}
			all, i = append(all, &pkg{dir: fields[0], rel: rel, path: fields[1], holds: map[string]string{}}), len(all)
		}
		for name, text := range holds {
			all[i].holds[name] = text
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no package has a fuzz target")
	}
	return all, nil
}

// promises gives the targets of a file and what the comment above each says,
// without its name.
func promises(file string) (map[string]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Fuzz") {
			continue
		}
		text := oneLine(fn.Doc.Text())
		for _, lead := range []string{fn.Name.Name + ": ", fn.Name.Name + " "} {
			text = strings.TrimPrefix(text, lead)
		}
		all[fn.Name.Name] = text
	}
	return all, nil
}

// build compiles the packages for fuzzing. What a package then lists must be what
// stands in its files: a target that a build leaves out is no target.
func build(ctx context.Context, o report.Options, packages []*pkg) (all []*target, err error) {
	dir := filepath.Join(o.Work, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, p := range packages {
		p.bin = filepath.Join(dir, p.file()+".test")
		o.Say("fuzz: build %s", p.rel)
		if _, err := output(command(ctx, o, "test", "-c", "-tags", tags, "-fuzz", ".", "-cover", "-o", p.bin, p.path)); err != nil {
			return nil, err
		}
		list := exec.CommandContext(ctx, p.bin, "-test.list", "^Fuzz")
		list.Dir = p.dir
		out, err := output(list)
		if err != nil {
			return nil, err
		}
		listed := strings.Fields(out)
		for _, name := range listed {
			all = append(all, &target{pkg: p, name: name, holds: p.holds[name]})
		}
		if len(listed) != len(p.holds) {
			return nil, fmt.Errorf("%s: %d targets stand in its files, and %d are built: %v", p.rel, len(p.holds), len(listed), listed)
		}
	}
	return all, nil
}
