package sandbox

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResolve(t *testing.T) {
	files := map[string]string{
		"usr/bin/sh": "x", "bin": "-> usr/bin", "abs": "-> $T/usr", "up": "-> usr/../usr/bin", "chain": "-> bin",
		"loop": "-> loop2", "loop2": "-> loop", "dangling": "-> gone/file", "file": "x", "self": "-> .",
	}
	for i := range 41 {
		files["deep"+strconv.Itoa(i)] = "-> deep" + strconv.Itoa(i+1)
	}
	files["deep41"] = "x"
	dir := layout(t, files)
	cases := []struct {
		name  string
		path  string
		real  string
		links []string
		err   error
	}{
		{"plain", "usr/bin/sh", "usr/bin/sh", nil, nil},
		{"a link to a directory", "bin/sh", "usr/bin/sh", []string{"bin -> usr/bin"}, nil},
		{"a link to a link", "chain/sh", "usr/bin/sh", []string{"chain -> bin", "bin -> usr/bin"}, nil},
		{"an absolute link", "abs/bin/sh", "usr/bin/sh", []string{"abs -> $T/usr"}, nil},
		{"dots in a link follow what is real", "up/sh", "usr/bin/sh", []string{"up -> usr/../usr/bin"}, nil},
		{"a link to itself as directory", "self/self/file", "file", []string{"self -> .", "self -> ."}, nil},
		{"missing", "usr/gone/file", "usr/gone/file", nil, fs.ErrNotExist},
		{"dangling", "dangling", "gone/file", []string{"dangling -> gone/file"}, fs.ErrNotExist},
		{"below a file", "file/x", "file/x", nil, syscall.ENOTDIR},
		{"40 links are followed", "deep1", "deep41", nil, nil},
		{"41 are not", "deep0", "", nil, syscall.ELOOP},
		{"a loop", "loop", "", nil, syscall.ELOOP},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r, err := resolve(filepath.Join(dir, c.path))
			if !errors.Is(err, c.err) {
				t.Fatalf("error: got %v, want %v", err, c.err)
			}
			if want := filepath.Join(dir, c.real); c.real != "" && r.real != want {
				t.Errorf("real: got %q, want %q", r.real, want)
			}
			if c.links == nil {
				return
			}
			var links []string
			for _, l := range r.links {
				links = append(links, strings.TrimPrefix(l.path, dir+"/")+" -> "+strings.ReplaceAll(l.target, dir, "$T"))
			}
			if diff := cmp.Diff(c.links, links); diff != "" {
				t.Errorf("links (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpand(t *testing.T) {
	dir := layout(t, map[string]string{"a/.env": "x", "b/c/.env": "x", "b/.envrc": "x", "[x]/f": "x", "x/f": "x"})
	cases := []struct {
		pattern string
		glob    bool
		want    []string
	}{
		{"a/.env", false, []string{"a/.env"}},
		{"gone", false, []string{"gone"}},
		{"[x]/f", false, []string{"[x]/f"}}, // no pattern, whatever it looks like
		{`\[x\]/*`, true, []string{"[x]/f"}},
		{"*/.env", true, []string{"a/.env"}},
		{"**/.env", true, []string{"a/.env", "b/c/.env"}},
		{"gone/*", true, nil},
	}
	for _, c := range cases {
		got, err := expand(filepath.Join(dir, c.pattern), c.glob)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
		}
		if diff := cmp.Diff(c.want, under(dir, got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.pattern, diff)
		}
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		path, root string
		want       bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/a/b", "/a/", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/a", "/", true},
	} {
		if got := within(c.path, c.root); got != c.want {
			t.Errorf("%q in %q: got %v, want %v", c.path, c.root, got, c.want)
		}
	}
}
