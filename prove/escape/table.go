package escape

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
)

// Case is one entry of the table.
type Case struct {
	// ID is a letter for the group and a number: "A10".
	ID string
	// Name is a short name of words joined by hyphens.
	Name string
	// Title says what is tried.
	Title string
	// Absent says why the case cannot be carried out anywhere, "machine: …"; the
	// title then says what would be tried.
	Absent string
	// Needs lists commands that the case takes; without one it cannot be run.
	Needs []string
	// Kernel says in which kernels the attack exists at all; see Features.
	Kernel string
	// Where lists the configurations it is run in; "every" stands for all.
	Where []string
	// As says which accounts run it: user, root or both.
	As string
	// Control says how the twin is run: bare, naive or own.
	Control string
	// Kill bounds one run.
	Kill time.Duration
	// Variants is "lines" or a generator with its arguments; empty: one run.
	Variants string
	// Only names the one sandbox that the case is about; empty: any.
	Only string
	// Sections are the scripts, by their name.
	Sections map[string]string
	// At is where the entry begins, as FILE:LINE.
	At string
}

const defaultKill = 40 * time.Second

// Group is the letter that the ID begins with.
func (c Case) Group() string { return c.ID[:1] }

// Language says in which section the program of the case is.
func (c Case) Language() string {
	for _, l := range []string{"probe", "python", "c"} {
		if c.Sections[l] != "" {
			return l
		}
	}
	return ""
}

var (
	caseLine    = regexp.MustCompile(`^=== ([A-Z][0-9]+[a-z]?)\s+(\S+)$`)
	sectionLine = regexp.MustCompile(`^--- (\S+)$`)
	headerLine  = regexp.MustCompile(`^([a-z]+):\s*(.*)$`)
	// A remark after a value begins with a hash between blanks.
	remark = regexp.MustCompile(`\s+#(\s.*)?$`)
)

// controls are how a twin can be run; a word after "naive" is the gateway's
// mistake, see web.Naive.
var controls = []string{"bare", "own", "naive", "naive first", "naive each", "naive deny", "naive suffix", "naive host", "naive sni", "naive follow", "naive buffer", "naive events", "naive fragile"} //nolint:gochecknoglobals // a constant

var sections = []string{"host", "probe", "python", "c", "policy", "control", "lines"} //nolint:gochecknoglobals // a constant

// Load reads every table of a directory and gives the cases in the order of
// their IDs.
func Load(dir string) ([]Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []Case
	var errs []error
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		cases, err := Parse(f, filepath.Base(file))
		f.Close()
		all, errs = append(all, cases...), append(errs, err)
	}
	seen := map[string]string{}
	for _, c := range all {
		if at, twice := seen[c.ID]; twice {
			errs = append(errs, fmt.Errorf("%s: %s is at %s too", c.At, c.ID, at))
		}
		seen[c.ID] = c.At
	}
	if len(all) == 0 {
		errs = append(errs, fmt.Errorf("no cases in %q", dir))
	}
	sort.SliceStable(all, func(i, j int) bool { return before(all[i].ID, all[j].ID) })
	return all, errors.Join(errs...)
}

// before orders A2 before A10.
func before(a, b string) bool {
	if a[0] != b[0] {
		return a[0] < b[0]
	}
	x, y := digits.FindString(a[1:]), digits.FindString(b[1:])
	if len(x) != len(y) {
		return len(x) < len(y)
	}
	return a < b
}

// Parse reads one table. Every mistake is reported.
func Parse(r io.Reader, name string) ([]Case, error) {
	p := parser{name: name}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		p.line++
		p.take(in.Text())
	}
	p.end()
	return p.cases, errors.Join(append(p.errs, in.Err())...)
}

type parser struct {
	name    string
	line    int
	cases   []Case
	errs    []error
	c       *Case
	section string
	text    strings.Builder
}

func (p *parser) fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s:%d: %w", p.name, p.line, fmt.Errorf(format, args...)))
}

func (p *parser) take(line string) {
	if m := caseLine.FindStringSubmatch(line); m != nil {
		p.end()
		p.c = &Case{
			ID: m[1], Name: m[2], At: fmt.Sprintf("%s:%d", p.name, p.line), Sections: map[string]string{},
			Where: []string{"strict"}, As: "both", Control: "bare", Kill: defaultKill,
		}
		return
	}
	if p.c == nil {
		if strings.HasPrefix(line, "===") {
			p.fail("want === ID name, got %q", line)
		}
		return // words before the first entry
	}
	if m := sectionLine.FindStringSubmatch(line); m != nil {
		p.endSection()
		p.section = m[1]
		if !slices.Contains(sections, p.section) {
			p.fail("section %q: not one of %q", p.section, sections)
		}
		return
	}
	if p.section != "" {
		p.text.WriteString(line + "\n")
		return
	}
	p.header(line)
}

func (p *parser) header(line string) {
	line = remark.ReplaceAllString(line, "")
	if line == "" || strings.HasPrefix(line, "#") {
		return
	}
	m := headerLine.FindStringSubmatch(line)
	if m == nil {
		p.fail("want key: value, got %q", line)
		return
	}
	words := strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
	switch c := p.c; m[1] {
	case "title":
		c.Title = m[2]
	case "needs":
		c.Needs = words
	case "kernel":
		c.Kernel = m[2]
	case "where":
		c.Where = words
	case "as":
		c.As = m[2]
	case "control":
		c.Control = m[2]
	case "kill":
		d, err := time.ParseDuration(m[2])
		if err != nil {
			p.fail("%w", err)
		}
		c.Kill = d
	case "variants":
		c.Variants = m[2]
	case "absent":
		c.Absent = m[2]
	case "only":
		c.Only = m[2]
	default:
		p.fail("header %q: unknown", m[1])
	}
}

func (p *parser) endSection() {
	if p.section != "" {
		if _, twice := p.c.Sections[p.section]; twice {
			p.fail("section %q: there twice", p.section)
		}
		p.c.Sections[p.section] = strings.Trim(p.text.String(), "\n") + "\n"
	}
	p.section = ""
	p.text.Reset()
}

func (p *parser) end() {
	if p.c == nil {
		return
	}
	p.endSection()
	c := *p.c
	p.c = nil
	check := func(ok bool, format string, args ...any) {
		if !ok {
			p.errs = append(p.errs, fmt.Errorf("%s: %s: %w", c.At, c.ID, fmt.Errorf(format, args...)))
		}
	}
	check(c.Title != "", "no title")
	check(slices.Contains([]string{"user", "root", "both"}, c.As), "as: %q: want user, root or both", c.As)
	check(slices.Contains(controls, c.Control), "control: %q: want one of %q", c.Control, controls)
	check((c.Control == "own") == (c.Sections["control"] != ""), "control: own and a section control belong together")
	check(c.Absent != "" || c.Language() != "" || c.Sections["host"] != "", "no script")
	check(c.Absent == "" || strings.HasPrefix(c.Absent, "machine: "), "absent: %q: want machine: and the reason", c.Absent)
	check((c.Variants == "lines") == (c.Sections["lines"] != ""), "variants: lines and a section lines belong together")
	_, err := variantsOf(c, 1, 1)
	check(err == nil, "%w", err)
	_, err = parseFeatures(c.Kernel)
	check(err == nil, "%w", err)
	for _, w := range c.Where {
		check(w == "every" || knownConfiguration(w), "where: %q: no such configuration", w)
	}
	p.cases = append(p.cases, c)
}
