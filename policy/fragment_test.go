package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// withFragments adds two fragments and one that lacks something here.
func withFragments(w world) world {
	texts := map[string]string{
		"provider/one": "version: 1\nname: one\ndescription: of the fragment\nnetwork:\n  rules:\n    - {name: one, host: one.example.org}\n" +
			"assert:\n  - allow: {connect: \"one.example.org:443\"}\n",
		"tool/two":  "version: 1\nenv:\n  set: {TWO: \"2\"}\n",
		"tool/wide": "version: 1\nprocess: {ptrace: true}\nextends: []\n",
	}
	w.opts.Fragments = []string{"provider/one", "tool/lacks", "tool/two", "tool/wide"}
	w.opts.Fragment = func(name string) ([]byte, error) {
		if name == "tool/lacks" {
			return nil, Problems{{What: "it needs a thing", Hint: "get the thing"}}
		}
		text, ok := texts[name]
		if !ok {
			return nil, fmt.Errorf("no %q", name)
		}
		return []byte(text), nil
	}
	return w
}

func TestEnable(t *testing.T) {
	w := withFragments(newWorld(t))
	p := w.mustLoad("version: 1\nenable: [provider/one, tool/two, provider/one]\nenv:\n  set: {TWO: mine}\n")
	var sources []string
	for _, s := range p.Sources {
		if s.Digest == "" {
			t.Errorf("source %q: got no digest", s.Name)
		}
		sources = append(sources, s.Name)
	}
	if want := []string{"builtin:strict", "builtin:provider/one", "builtin:tool/two", w.work + "/p.yaml"}; !slices.Equal(sources, want) {
		t.Errorf("sources: got %q, want %q", sources, want)
	}
	i := slices.IndexFunc(p.Network.Rules, func(r Rule) bool { return r.Name == "one" })
	if i < 0 || p.Network.Rules[i].Pos.String() != "builtin:provider/one:6:7" {
		t.Errorf("got the rules %v, want one with its place", p.Network.Rules)
	}
	if p.Env.Set["TWO"] != "mine" {
		t.Errorf("got TWO=%q, want the policy's own to count after its fragments", p.Env.Set["TWO"])
	}
	if p.Name != "p" || p.Description != "" {
		t.Errorf("got name %q and description %q, want nothing of the fragment", p.Name, p.Description)
	}
	if len(p.Enable) != 2 {
		t.Errorf("got enable %v, want each once", p.Enable)
	}
	if with, without := p.Digest, w.mustLoad("version: 1\n").Digest; with == without {
		t.Error("digest: got the same with fragments and without")
	}
}

// What extends a policy has its fragments, and flags add further ones above it.
func TestEnableInBaseAndFlags(t *testing.T) {
	w := withFragments(newWorld(t))
	w.write("work/base.yaml", "version: 1\nenable: [provider/one]\n")
	w.opts.Flags.Enable = []string{"tool/two", "provider/one"}
	p := w.mustLoad("version: 1\nextends: [./base.yaml]\nenv:\n  set: {TWO: mine}\n")
	if len(p.Enable) != 2 || p.Env.Set["TWO"] != "2" || p.Name != "p" {
		t.Errorf("got enable %v, TWO=%q, name %q, want both, that of the flag, and the file's", p.Enable, p.Env.Set["TWO"], p.Name)
	}
	if pos := p.Enable[1].Pos.String(); pos != "flag --enable" {
		t.Errorf("got the place %q, want the flag", pos)
	}
}

func TestEnableMistakes(t *testing.T) {
	for name, c := range map[string]struct{ text, what, hint string }{
		"unknown":        {"version: 1\nenable: [provider/on]\n", `p.yaml:2:10: enable[0]: provider/on: there is no such fragment`, `did you mean "provider/one"?`},
		"kind forgotten": {"version: 1\nenable: [channel/two]\n", "there is no such fragment", `did you mean "tool/two"?`},
		"not a name":     {"version: 1\nenable: [two]\n", `"two" is not a valid fragment`, "hermes-wrap profiles"},
		"lacks":          {"version: 1\nenable: [tool/lacks]\n", "p.yaml:2:10: enable[0]: tool/lacks: it needs a thing", "get the thing"},
		"too wide":       {"version: 1\nenable: [tool/wide]\n", "builtin:tool/wide:2:10: process: has no meaning in a fragment", "fragments hold"},
		"extends":        {"version: 1\nenable: [tool/wide]\n", "builtin:tool/wide:3:10: extends: has no meaning in a fragment", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := withFragments(newWorld(t)).load(c.text)
			ps, ok := err.(Problems)
			if !ok || !slices.ContainsFunc(ps, func(p Problem) bool { return strings.Contains(p.Error(), c.what) && strings.Contains(p.Hint, c.hint) }) {
				t.Errorf("got %#v, want %q and the hint %q", err, c.what, c.hint)
			}
		})
	}
}

// A project's file and the floor only tighten.
func TestEnableElsewhere(t *testing.T) {
	w := withFragments(newWorld(t))
	w.write("work/.hermes-wrap.yaml", "version: 1\nenable: [provider/one]\n")
	if _, err := w.load("version: 1\n"); err == nil || !strings.Contains(err.Error(), ".hermes-wrap.yaml:2:9: enable: has no meaning in this file") {
		t.Errorf("got %v, want a refusal", err)
	}
}

// A file of variables counts as outside of what is granted where it is hidden.
func TestDotenvMustBeHidden(t *testing.T) {
	const text = "version: 1\nfilesystem:\n  write: [~/state]\n%s\ncredentials:\n  c:\n    source: {env: C_KEY, dotenv: ~/state/.env?}\n    attach: bearer\n" +
		"    hosts: [c.example.org]\nnetwork:\n  rules:\n    - {name: c, host: c.example.org, credential: c}\n"
	w := newWorld(t)
	w.write("state/.env", "C_KEY=x\n")
	if _, err := w.load(fmt.Sprintf(text, "")); err == nil || !strings.Contains(err.Error(), "which is visible inside") {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := w.load(fmt.Sprintf(text, "  hide: [~/state/.env?]")); err != nil {
		t.Errorf("hidden: got %v, want no mistake", err)
	}
	for source, want := range map[string]string{
		"{dotenv: ~/x}":                 "names no variable",
		"{key: k, env: C_KEY}":          "names no file",
		"{env: C_KEY, file: ~/x}":       "names 2 sources",
		"{file: ~/x, dotenv: ~/y}":      "names no variable",
		"{env: C_KEY, dotenv: \"~/*\"}": "wildcard",
	} {
		_, err := w.load(strings.Replace(fmt.Sprintf(text, ""), "{env: C_KEY, dotenv: ~/state/.env?}", source, 1))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", source, err, want)
		}
	}
}
