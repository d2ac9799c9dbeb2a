package sandbox

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fuzzFD is a descriptor to send along, and how many like it are open.
type fuzzFD struct{ path string }

func newFuzzFD(t testing.TB) fuzzFD {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sent")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return fuzzFD{path}
}

// left counts the descriptors of this process that are open on it. Those of
// other files come and go as the fuzzer works.
func (f fuzzFD) left(t testing.TB) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		if to, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && to == f.path {
			n++
		}
	}
	return n
}

// FuzzChannel: a packet with any bytes and any number of descriptors is one whole
// JSON object that says the same when it is sent again, or an error that leaves no
// descriptor behind. Both sides of the launcher read with it.
func FuzzChannel(f *testing.F) {
	for _, m := range []message{
		{Op: opNetwork},
		{Op: opExited, Status: 256},
		{Op: opFailed, Step: "exec", Error: "no", Errno: 2},
		{Op: opStart, Id: 7, Streams: [3]bool{true, false, true}, Terminal: true, Rows: 24},
		{Op: opLayers, Layers: []layerNews{{}}},
		{Op: opBlobs, Blobs: []Blob{BlobBundle}},
		{Op: opDial, Path: "/run/x", Datagram: true},
		{Op: opAnswer, Id: 1, Error: "x"},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(len(b)%4))
	}
	for _, text := range []string{"", "{}", "{}{}", "null", "[]", `{"op":7}`, `{"op":"x"}}`, `{"OP":"exited"}`, `{"op":"a","op":"b"}`, "{\"op\":\"\xff\"}", `{"id":1e99}`} {
		f.Add([]byte(text), uint8(2))
	}
	sent := newFuzzFD(f)
	f.Fuzz(func(t *testing.T, b []byte, files uint8) {
		if len(b) > 100<<10 {
			return
		}
		ours, theirs, err := NewChannelPair()
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		defer theirs.Close()
		file, err := os.Open(sent.path)
		if err != nil {
			t.Fatal(err)
		}
		fds := slices.Repeat([]int{int(file.Fd())}, int(files%6))
		err = unix.Sendmsg(int(theirs.f.Fd()), b, unix.UnixRights(fds...), nil, 0)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		m, err := ours.receive()
		if err != nil {
			if n := sent.left(t); n > 0 || len(m.files) > 0 {
				t.Fatalf("%q: got %v and %d descriptors left, want none", b, err, n)
			}
			return
		}
		if !json.Valid(b) || len(m.files) != len(fds) {
			t.Fatalf("%q: got %+v with %d descriptors, want an error or all %d", b, m, len(m.files), len(fds))
		}
		closeAll(m.files)
		if n := sent.left(t); n > 0 {
			t.Fatalf("%q: got %d descriptors left, want none", b, n)
		}
		m.files = nil
		if err := ours.send(m); err != nil {
			t.Fatalf("%q was read as %+v, which cannot be sent: %v", b, m, err)
		}
		if again, err := theirs.receive(); err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%q was read as %+v, and that as %+v (%v)", b, m, again, err)
		}
	})
}

// starterHarness asks starter.c how it reads a block, which lies in memory of
// exactly its size.
const starterHarness = `
#include "starter.c"
#include <stdio.h>
#include <stdlib.h>

static void show(const char *s)
{
	for (; *s; s++)
		printf("%02x", (unsigned char)*s);
	printf("\n");
}

static void list(const char *name, char **all)
{
	for (; *all; all++) {
		printf("%s ", name);
		show(*all);
	}
}

int main(void)
{
	uint64_t size;

	while (fread(&size, sizeof size, 1, stdin) == 1) {
		char *base = malloc(size ? size : 1);
		if (!base || fread(base, 1, size, stdin) != size)
			return 1;
		if (!read_order(base, size)) {
			printf("refused\n");
		} else {
			list("program", task.programs);
			list("arg", task.argv);
			list("env", task.envp);
			printf("cwd ");
			show(task.cwd);
		}
		printf("end\n");
		fflush(stdout);
		free(base);
	}
	return 0;
}
`

// starterReader is that program, built with the address sanitizer: it ends where
// it would read outside of a block.
type starterReader struct {
	in  io.Writer
	out *bufio.Scanner
}

func newStarterReader(t testing.TB) *starterReader {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "harness.c"), filepath.Join(dir, "harness")
	if err := os.WriteFile(source, []byte(starterHarness), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("gcc", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-w", "-I", here, "-o", program, source)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the harness: %v\n%s", err, text)
	}
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	s := bufio.NewScanner(out)
	s.Buffer(nil, 16<<20)
	return &starterReader{in, s}
}

// read gives what starter.c makes of a block, a line each.
func (s *starterReader) read(t *testing.T, block []byte) (lines []string) {
	t.Helper()
	size := binary.NativeEndian.AppendUint64(nil, uint64(len(block)))
	if _, err := s.in.Write(append(size, block...)); err != nil {
		t.Fatal(err)
	}
	for s.out.Scan() {
		if s.out.Text() == "end" {
			return lines
		}
		lines = append(lines, s.out.Text())
	}
	t.Fatalf("the starter's reader ended over %x", block)
	return nil
}

// sealedText gives the bytes of a block as init sends them.
func sealedText(t *testing.T, b block) []byte {
	t.Helper()
	f, err := b.seal()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := ReadSealed(f)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// FuzzStarterOrder: the starter, which is C, reads of a block what init wrote, and
// of any other bytes nothing outside of them. The block is made of words that are
// divided by zero bytes, and then changed in one place.
func FuzzStarterOrder(f *testing.F) {
	f.Add([]byte("/bin/sh\x00/usr/bin/sh"), []byte("sh\x00-c\x00true"), []byte("A=1\x00B="), "/work", uint16(0), uint64(0))
	f.Add([]byte("/bin/true"), []byte(""), []byte(""), "/", uint16(0), uint64(1<<63))
	f.Add([]byte("a"), []byte("b"), []byte("c"), "d", uint16(1), uint64(0x20))
	f.Add([]byte("a"), []byte("b"), []byte("c"), "d", uint16(5), uint64(0xffffffffffffffff))
	f.Add([]byte("a\x00b\x00c\x00d\x00e\x00f\x00g"), []byte("\xff\x00\n"), []byte("x"), "", uint16(3), uint64(64))
	starter := newStarterReader(f)
	f.Fuzz(func(t *testing.T, programs, argv, env []byte, cwd string, at uint16, flip uint64) {
		if len(programs)+len(argv)+len(env)+len(cwd) > 8<<10 || strings.ContainsRune(cwd, 0) {
			return
		}
		words := func(b []byte) []string { return strings.Split(string(b), "\x00") }
		b := block{words(programs), words(argv), words(env), cwd}
		var want []string
		for _, l := range []struct {
			name string
			all  []string
		}{{"program", b.programs}, {"arg", b.argv}, {"env", b.env}, {"cwd", []string{b.cwd}}} {
			for _, s := range l.all {
				want = append(want, l.name+" "+hex.EncodeToString([]byte(s)))
			}
		}
		text := sealedText(t, b)
		if got := starter.read(t, text); !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		// Whatever stands there, it is refused or lies in the block.
		i := int(at) % (len(text) / 8) * 8
		binary.NativeEndian.PutUint64(text[i:], binary.NativeEndian.Uint64(text[i:])^flip)
		for _, broken := range [][]byte{text, text[:len(text)-int(at)%len(text)], append(bytes.Clone(argv), env...)} {
			for _, line := range starter.read(t, broken) {
				if kind, _, _ := strings.Cut(line, " "); !slices.Contains([]string{"refused", "program", "arg", "env", "cwd"}, kind) {
					t.Fatalf("got %q", line)
				}
			}
		}
	})
}
