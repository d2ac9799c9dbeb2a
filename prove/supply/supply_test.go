package supply

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func newRun(t *testing.T) *run {
	t.Helper()
	return &run{o: report.Options{Root: root(t), Work: t.TempDir(), Say: t.Logf}}
}

// No module of the binary has a licence beyond the list, and the texts that go along
// in the packages are those of its modules.
func TestLicences(t *testing.T) {
	if _, err := newRun(t).licences(t.Context()); err != nil {
		t.Error(err)
	}
	build, err := os.ReadFile(filepath.Join(root(t), "packaging", "build"))
	if err != nil || !strings.Contains(string(build), "packaging/THIRD_PARTY") {
		t.Errorf("packaging/build: got no THIRD_PARTY among the documents (%v)", err)
	}
}

func TestClassify(t *testing.T) {
	const bsd = "Redistribution and use in source and binary\n forms, with or without modification, are permitted"
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"MIT", "Permission is hereby granted, free of charge, to any  person obtaining a copy of", []string{"MIT"}},
		{"BSD, two clauses", bsd, []string{"BSD-2-Clause"}},
		{"BSD, three clauses", bsd + " Neither the name of Google Inc. nor the names", []string{"BSD-3-Clause"}},
		{"Apache", "Apache License\n   Version 2.0, January 2004", []string{"Apache-2.0"}},
		{"two in one", "Apache License, Version 2.0 ... Permission is hereby granted, free of charge, to any person obtaining a copy", []string{"Apache-2.0", "MIT"}},
		{"AGPL", "GNU AFFERO GENERAL PUBLIC LICENSE", []string{"AGPL"}},
		{"MPL, which names the GPL", "Mozilla Public License, version 2.0 1.12. \"Secondary License\" means either the GNU General Public License, Version 2.0, the GNU Lesser General Public License, Version 2.1, the GNU Affero General Public License, Version 3.0, or any later versions of those licenses.", []string{"MPL-2.0"}},
		{"MPL with more of the GPL", "Mozilla Public License, version 2.0 and the GNU General Public License", []string{"GPL", "MPL-2.0"}},
		{"none", "All rights reserved.", nil},
	} {
		if got := classify(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	module := func(name string, files map[string]string) Component {
		c := Component{Name: name, Version: "v1.0.0", Files: files}
		c.judge()
		return c
	}
	const mit = "Permission is hereby granted, free of charge, to any person obtaining a copy"
	const offered = "The licensed conditions are one or the other of these two Licenses: - BSD 3-clause - GPL v2.0 Redistribution and use in source and binary forms; may not be used to endorse. GNU General Public License"
	psx := "kernel.org/pub/linux/libs/security/libcap/psx"
	for _, c := range []struct {
		name   string
		module Component
		want   string // "" for none
	}{
		{"allowed", module("a", map[string]string{"LICENSE": mit}), ""},
		{"copyleft in a part", module("a", map[string]string{"LICENSE": mit, "part/COPYING": "GNU General Public License"}), "the licence GPL is not one of"},
		{"none", module("a", map[string]string{"NOTICE": mit}), "no licence was found"},
		{"unknown", module("a", map[string]string{"LICENSE": "do no evil"}), "no licence was found"},
		{"one of two to choose", module(psx, map[string]string{"License": offered}), ""},
		{"no choice any more", module(psx, map[string]string{"License": strings.Replace(offered, "one or the other", "both", 1)}), "the licence GPL is not one of"},
		{"somebody else's choice", module("a", map[string]string{"License": offered}), "the licence GPL is not one of"},
	} {
		got := strings.Join(Refused([]Component{c.module}), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// Nothing that builds, checks or releases takes what may be another thing tomorrow.
func TestPinned(t *testing.T) {
	result, err := newRun(t).pins(t.Context())
	if err != nil {
		t.Error(err)
	}
	t.Log(result)
}

func TestLooseIsFound(t *testing.T) {
	for _, line := range []string{
		"go install example.org/tool@latest", "  - uses: actions/checkout@v4", "uses: owner/action@main", "- uses: owner/action", "curl -sSf https://example.org/i.sh | sudo sh",
		"go run -trimpath example.org/m/cmd/tool ./x", "npx prettier .", "git clone -b x; go install example.org/tool@master",
		"      uses: owner/action@0123456789abcdef0123456789abcdef0123456 # 39 digits",
	} {
		if len(looseIn(line)) == 0 {
			t.Errorf("%s: got nothing", line)
		}
	}
	for _, line := range []string{
		"go install example.org/tool@v1.2.3", "uses: ./", "- uses: owner/action@0123456789abcdef0123456789abcdef01234567 # v4", "go run ./prove/supply/bill licences",
		"curl -o f https://example.org/f", "# the latest one", `go install "example.org/tool@$version"`, "go run -trimpath -tags 'a b' ./cmd/x",
	} {
		if got := looseIn(line); len(got) > 0 {
			t.Errorf("%s: got %v", line, got)
		}
	}
}

// What was signed is verified; a changed byte, a missing file, another key, and
// whatever else is changed, is refused.
func TestSignatures(t *testing.T) {
	result, err := newRun(t).signatures(t.Context())
	if err != nil {
		t.Error(err)
	}
	t.Log(result)
}

func TestSignRefuses(t *testing.T) {
	r := newRun(t)
	k, err := r.makeKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, fill := range map[string]func(dir string) error{
		"nothing":             func(string) error { return nil },
		"a directory":         func(dir string) error { return os.Mkdir(filepath.Join(dir, "sub"), 0o755) },
		"a symbolic link":     func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "a.deb")) },
		"a name with a space": func(dir string) error { return os.WriteFile(filepath.Join(dir, "a b.deb"), nil, 0o644) },
	} {
		dir := t.TempDir()
		if err := fill(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := output(r.command(t.Context(), "packaging/sign", dir, k.ours)); err == nil {
			t.Errorf("%s: it was signed", name)
		}
	}
}

func TestAccount(t *testing.T) {
	const trace = `# github.com/hermes-wrap/hermes-wrap/cmd/hermes-wrap
/usr/lib/gcc/x86_64-linux-gnu/12/../../../x86_64-linux-gnu/crt1.o
/usr/lib/gcc/x86_64-linux-gnu/12/crtbeginT.o
/tmp/go-link-4132310609/go.o
(/usr/lib/x86_64-linux-gnu/libseccomp.a)api.o
(/usr/lib/x86_64-linux-gnu/libc.a)printf.o
/usr/lib/gcc/x86_64-linux-gnu/12/libgcc.a
`
	if unknown, used := account(trace); len(unknown) > 0 || !slices.Equal(used, []string{"glibc", "libgcc", "libseccomp"}) {
		t.Errorf("got %v and %v", unknown, used)
	}
	if unknown, _ := account(trace + "(/usr/lib/libevil.a)x.o\n/opt/y.o\n"); !slices.Equal(unknown, []string{"/opt/y.o", "/usr/lib/libevil.a"}) {
		t.Errorf("got %v, want what is strange", unknown)
	}
}

// document lists what this test's own binary says about itself.
func document(t *testing.T) (components []any, bin string) {
	t.Helper()
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	add := func(name, version, sum string) {
		b, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
		components = append(components, map[string]any{
			"name": name, "version": version, "licenses": []any{}, "hashes": []any{map[string]any{"content": hex.EncodeToString(b)}},
		})
	}
	for _, l := range cLibraries {
		add(l.name, "1", "")
	}
	add("std", info.GoVersion, "")
	for _, m := range info.Deps {
		add(m.Path, m.Version, m.Sum)
	}
	return components, bin
}

func TestCompare(t *testing.T) {
	compare := func(change func(all []any) []any) string {
		all, bin := document(t)
		b, err := json.Marshal(map[string]any{"components": change(all)})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(Compare(b, bin), "; ")
	}
	if got := compare(func(all []any) []any { return all }); got != "" {
		t.Errorf("control: got %s", got)
	}
	set := func(key string, value any) func([]any) []any {
		return func(all []any) []any {
			all[3].(map[string]any)[key] = value
			return all
		}
	}
	for _, c := range []struct {
		name   string
		change func([]any) []any
		want   string
	}{
		{"one less", func(all []any) []any { return all[1:] }, "does not list libseccomp"},
		{"one more", func(all []any) []any { return append(all, map[string]any{"name": "x", "version": "1"}) }, "which is not in the binary"},
		{"another version", set("version", "go0"), "the binary go1"},
		{"no licence", set("licenses", nil), "has no licence"},
	} {
		if got := compare(c.change); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFindings(t *testing.T) {
	const config = `{"config":{"db":"x","db_last_modified":"2026-01-01"}}` + "\n"
	finding := func(function string) string {
		return `{"finding":{"osv":"GO-1","trace":[{"module":"m","function":"` + function + `"}]}}` + "\n"
	}
	if found, when, err := findings(config + finding("f") + finding("f")); err != nil || len(found) != 1 || when != "2026-01-01" {
		t.Errorf("got %v of %s (%v), want one", found, when, err)
	}
	if found, _, err := findings(config + finding("")); err != nil || len(found) > 0 {
		t.Errorf("a function that nobody calls: got %v (%v)", found, err)
	}
	if _, _, err := findings(finding("f")); err == nil {
		t.Error("no database: got no error")
	}
}
