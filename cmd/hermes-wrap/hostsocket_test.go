package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMetricsSocket(t *testing.T) {
	cases := []struct {
		name   string
		before func(t *testing.T, path string)
		err    string
	}{
		{"nothing is there", func(*testing.T, string) {}, ""},
		{"a dead socket of ours", func(t *testing.T, path string) {
			f, err := listenPrivate(filepath.Dir(path), filepath.Base(path), unix.SOCK_STREAM)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}, ""},
		{"a live socket", func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}, "is served by another run"},
		{"a file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("keep"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "is no socket"},
		{"a link to a socket", func(t *testing.T, path string) {
			if err := os.Symlink(filepath.Join(filepath.Dir(path), "elsewhere"), path); err != nil {
				t.Fatal(err)
			}
		}, "is no socket"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "below", "metrics")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			c.before(t, path)
			m, err := openMetrics(path)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("what was there: got %v, want it left alone", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(path)
			if err != nil || info.Mode() != os.ModeSocket|0o600 {
				t.Errorf("got %v, %v, want a socket with mode 0600", info.Mode(), err)
			}
			m.close()
			if _, err := os.Lstat(path); err == nil {
				t.Error("after the end: got the socket, want it removed")
			}
		})
	}
}

// Another's socket at the same place is not removed with ours.
func TestMetricsSocketOfAnotherStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics")
	m, err := openMetrics(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m.close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("got %v, want the other socket left alone", err)
	}
}

func TestNoMetricsSocket(t *testing.T) {
	m, err := openMetrics("")
	if m != nil || err != nil {
		t.Errorf("got %v, %v, want none", m, err)
	}
	m.close()
}
