package supply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tags are those of the release build.
const tags = "seccomp netgo osusergo"

// Component is something that is in the binary and not ours.
type Component struct {
	Name, Version string
	// Licences are SPDX identifiers, sorted. Several: each covers a part, unless Note
	// says otherwise.
	Licences []string
	Note     string
	// Files are the texts that its licence wants to go along, by their place in it.
	Files map[string]string
}

// licence is the expression for it.
func (c Component) licence() string { return strings.Join(c.Licences, " AND ") }

// phrases tell licences by a sentence that each has, in lower case and with single
// spaces.
var phrases = map[string]*regexp.Regexp{
	"Apache-2.0": regexp.MustCompile(`apache license,? version 2\.0`),
	"MPL-2.0":    regexp.MustCompile(`mozilla public license,? version 2\.0`),
	"MIT":        regexp.MustCompile(`permission is hereby granted, free of charge, to any person obtaining a copy`),
	"ISC":        regexp.MustCompile(`permission to use, copy, modify, and(/or)? distribute this software for any purpose`),
	"BSD":        regexp.MustCompile(`redistribution and use in source and binary forms`),
	"AGPL":       regexp.MustCompile(`gnu affero general public license`),
	"LGPL":       regexp.MustCompile(`gnu (lesser|library) general public license`),
	"GPL":        regexp.MustCompile(`gnu general public license|\bgpl\b`),
	"CC":         regexp.MustCompile(`creative commons`),
	"Unlicense":  regexp.MustCompile(`released into the public domain`),
}

// endorsement is what the BSD licence with three clauses has more.
var endorsement = regexp.MustCompile(`(neither the names? of|may not be used to endorse|names? of [^.]* may not be used)`)

// classify gives the licences that a text is, or holds parts of.
func classify(text string) []string {
	text = strings.ReplaceAll(plain(text), secondary, "")
	found := map[string]bool{}
	for name, phrase := range phrases {
		if !phrase.MatchString(text) {
			continue
		}
		if name == "BSD" {
			name = "BSD-2-Clause"
			if endorsement.MatchString(text) {
				name = "BSD-3-Clause"
			}
		}
		found[name] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// plain gives a text in small letters, with single spaces.
func plain(text string) string { return strings.Join(strings.Fields(strings.ToLower(text)), " ") }

// allowed are the licences that a Go module of ours may have: they ask for their
// text to go along and for nothing of the binary as a whole.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

// choice is a licence that is left to whoever uses a module. The sentence must stand
// in a text of the module; what is unused is offered beside another one, or named in it.
type choice struct {
	unused         []string
	sentence, note string
}

// choices are the modules that leave one.
var choices = map[string]choice{
	"kernel.org/pub/linux/libs/security/libcap/psx": {
		[]string{"GPL", "LGPL"},
		"the licensed conditions are one or the other of these two licenses: - bsd 3-clause - gpl v2.0",
		"offered under the GPL version 2 as well; used under the BSD licence",
	},
}

// secondary is where the Mozilla licence names others, which it does not make its own.
const secondary = `"secondary license" means either the gnu general public license, version 2.0, the gnu lesser general public license, version 2.1, ` +
	"the gnu affero general public license, version 3.0, or any later versions of those licenses."

// texts tells the files that licences want to go along; judged, those of them that
// are licences.
var (
	texts  = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright|authors)([.-].*)?$`)
	judged = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)
)

// linked is a package that is in the binary.
type linked struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// Modules lists the Go modules of the binary that root holds the source of, and the
// standard library.
func Modules(ctx context.Context, root string) ([]Component, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-tags", tags, "-json=ImportPath,Dir,Standard,Module", "./cmd/hermes-wrap")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=1")
	out, err := output(cmd)
	if err != nil {
		return nil, err
	}
	all := map[string]*Component{}
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var p linked
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		if p.Module == nil || p.Module.Main {
			continue
		}
		c := all[p.Module.Path]
		if c == nil {
			c = &Component{Name: p.Module.Path, Version: p.Module.Version, Files: map[string]string{}}
			all[c.Name] = c
		}
		if err := c.collect(p.Module.Dir, p.Dir); err != nil {
			return nil, err
		}
	}
	std, err := standard(ctx, root)
	if err != nil {
		return nil, err
	}
	list := []Component{std}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c := all[name]
		c.judge()
		list = append(list, *c)
	}
	return list, nil
}

// collect takes the texts of a package's directory and of those above it: parts of
// modules have licences of their own.
func (c *Component) collect(module, dir string) error {
	for {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.IsDir() || !texts.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			path := filepath.Join(dir, e.Name())
			rel, err := filepath.Rel(module, path)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			c.Files[rel] = string(b)
		}
		if dir == module || !strings.HasPrefix(dir, module) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// judge finds out the licences.
func (c *Component) judge() {
	found := map[string]bool{}
	all := ""
	for name, text := range c.Files {
		if judged.MatchString(filepath.Base(name)) {
			for _, l := range classify(text) {
				found[l] = true
			}
		}
		all += text
	}
	if choice, ok := choices[c.Name]; ok && strings.Contains(plain(all), choice.sentence) {
		for _, l := range choice.unused {
			delete(found, l)
		}
		c.Note = choice.note
	}
	c.Licences = slices.Sorted(maps.Keys(found))
}

// standard is Go's own library, which has one licence.
func standard(ctx context.Context, root string) (Component, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION")
	cmd.Dir = root
	out, err := output(cmd)
	if err != nil {
		return Component{}, err
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(out), "\n")
	c := Component{Name: "std", Version: version, Files: map[string]string{}}
	for _, name := range []string{"LICENSE", "PATENTS"} {
		b, err := os.ReadFile(filepath.Join(goroot, name))
		if err != nil {
			return Component{}, fmt.Errorf("the licence of Go: %w", err)
		}
		c.Files[name] = string(b)
	}
	c.judge()
	return c, nil
}

// Refused tells what is wrong with the licences of the modules; nothing is good.
func Refused(all []Component) (why []string) {
	for _, c := range all {
		if len(c.Licences) == 0 {
			why = append(why, fmt.Sprintf("%s %s: no licence was found in %v", c.Name, c.Version, slices.Sorted(maps.Keys(c.Files))))
		}
		for _, l := range c.Licences {
			if !slices.Contains(allowed, l) {
				why = append(why, fmt.Sprintf("%s %s: the licence %s is not one of %v", c.Name, c.Version, l, allowed))
			}
		}
	}
	return why
}

func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
