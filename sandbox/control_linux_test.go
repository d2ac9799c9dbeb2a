package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func channels(t *testing.T) (ours, theirs *Channel) {
	t.Helper()
	ours, theirs, err := NewChannelPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	return ours, theirs
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestChannelCarriesFiles(t *testing.T) {
	ours, theirs := channels(t)
	sent, err := SealedFile("test", []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	defer sent.Close()
	want := message{Op: opBlobs, Blobs: []Blob{BlobBundle}, Status: 7, files: []*os.File{sent}}
	if err := ours.send(want); err != nil {
		t.Fatal(err)
	}
	got, err := theirs.receive()
	if err != nil || got.Op != want.Op || got.Status != 7 || len(got.files) != 1 {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	defer closeAll(got.files)
	for range 2 {
		if b, err := ReadSealed(got.files[0]); err != nil || string(b) != "content" {
			t.Errorf("got %q, %v, want the content, however often it is read", b, err)
		}
	}
	if flags, err := unix.FcntlInt(got.files[0].Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags: got %#x, %v, want close on exec", flags, err)
	}
}

// A peer waits for what was to be sent: when it cannot be, both ends must know.
func TestFailedSendEndsConnection(t *testing.T) {
	ours, theirs := channels(t)
	if err := ours.send(message{Op: opExited, Status: 3}); err != nil {
		t.Fatal(err)
	}
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if err := ours.send(message{Op: opBlobs, files: []*os.File{closed}}); !errors.Is(err, unix.EBADF) {
		t.Fatalf("got %v, want %v", err, unix.EBADF)
	}
	if m, err := theirs.receive(); err != nil || m.Status != 3 {
		t.Errorf("what was sent before: got %+v, %v, want status 3", m, err)
	}
	for name, c := range map[string]*Channel{"peer": theirs, "own": ours} {
		if _, err := c.receive(); err != io.EOF {
			t.Errorf("%s: got %v, want %v", name, err, io.EOF)
		}
	}
}

// One object too many for a packet is the sender's affair: it says something else.
func TestLargeSendKeepsConnection(t *testing.T) {
	ours, theirs := channels(t)
	if err := ours.send(message{Op: opFailed, Found: strings.Repeat("x", 4<<20)}); !errors.Is(err, unix.EMSGSIZE) {
		t.Fatalf("got %v, want %v", err, unix.EMSGSIZE)
	}
	if err := ours.send(message{Op: opExited, Status: 3}); err != nil {
		t.Fatal(err)
	}
	if m, err := theirs.receive(); err != nil || m.Status != 3 {
		t.Errorf("got %+v, %v, want status 3", m, err)
	}
}

func TestSealedFileCannotBeChanged(t *testing.T) {
	f, err := SealedFile("test", []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, writeErr := f.WriteAt([]byte("x"), 0)
	_, sealErr := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, 0)
	for name, err := range map[string]error{"write": writeErr, "grow": f.Truncate(100), "shrink": f.Truncate(0), "seal": sealErr} {
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: got %v, want %v", name, err, unix.EPERM)
		}
	}
}

func TestChannelEndsWithItsPeer(t *testing.T) {
	ours, theirs := channels(t)
	if err := theirs.send(message{Op: opStarted}); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	if m, err := ours.receive(); err != nil || m.Op != opStarted {
		t.Fatalf("what was sent before the end: got %+v, %v", m, err)
	}
	if _, err := ours.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want %v", err, io.EOF)
	}
	if err := ours.send(message{Op: opSignal}); !errors.Is(err, unix.EPIPE) {
		t.Errorf("send: got %v, want %v and no signal", err, unix.EPIPE)
	}
}

// The peer of the launcher is not trusted once the agent runs.
func TestChannelKeepsNothingOfABadPacket(t *testing.T) {
	ours, theirs := channels(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	before := openFiles(t)
	for name, text := range map[string]string{
		"no JSON": "nothing", "another type": `{"op":7}`, "an array": `[]`, "longer than a packet may be": `{"op":"` + strings.Repeat("x", 70<<10) + `"}`,
	} {
		rights := unix.UnixRights(int(null.Fd()), int(null.Fd()))
		if err := unix.Sendmsg(int(theirs.f.Fd()), []byte(text), rights, nil, 0); err != nil {
			t.Fatal(err)
		}
		m, err := ours.receive()
		if err == nil || len(m.files) > 0 {
			t.Errorf("%s: got %+v, %v, want an error and no files", name, m, err)
		}
		if got := openFiles(t); got != before {
			t.Errorf("%s: got %d open files, want %d", name, got, before)
		}
	}
}

// Nor may it make the launcher panic, or fill its table of descriptors.
func TestLauncherKeepsNothingOfInit(t *testing.T) {
	sent := newFuzzFD(t)
	open := func() []*os.File {
		f, err := os.Open(sent.path)
		if err != nil {
			t.Fatal(err)
		}
		return []*os.File{f}
	}
	r := &run{messages: make(chan message, 1)}
	for _, status := range []int{-1, 2} {
		r.messages <- message{Op: opNetwork, Status: status, files: open()}
		if err := r.serveDoors(); err == nil {
			t.Errorf("%d listeners of one descriptor: got no error", status)
		}
	}
	for _, op := range []string{opExited, opFailed, opTTY, "x"} {
		if done, _, err := r.handle(t.Context(), message{Op: op, files: open()}, nil); !done && err == nil && op != "x" {
			t.Errorf("%s: got neither an end nor an error", op)
		}
	}
	if n := sent.left(t); n > 0 {
		t.Errorf("got %d descriptors left open, want none", n)
	}
}

func TestBlobReader(t *testing.T) {
	blob := func(text string) *os.File {
		f, err := SealedFile("test", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	cases := []struct {
		name string
		send *message
		want string
	}{
		{"two", &message{Op: opBlobs, Blobs: []Blob{BlobBundle, BlobTruststore}, files: []*os.File{blob("a"), blob("b")}}, "b"},
		{"another one", &message{Op: opBlobs, Blobs: []Blob{BlobBundle}, files: []*os.File{blob("a")}}, ""},
		{"a name without a file", &message{Op: opBlobs, Blobs: []Blob{BlobBundle, BlobTruststore}, files: []*os.File{blob("a")}}, ""},
		{"another message", &message{Op: opSignal}, ""},
		{"nothing", nil, ""},
	}
	for _, c := range cases {
		ours, theirs := channels(t)
		if c.send != nil {
			if err := ours.send(*c.send); err != nil {
				t.Fatal(err)
			}
		}
		ours.Close()
		b := blobReader{inbox: &inbox{control: theirs}}
		got, err := b.read(BlobTruststore)
		if string(got) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), string(BlobTruststore)) {
			t.Errorf("%s: got %v, want the blob named", c.name, err)
		}
	}
}

// What a peer sent last is read, also when it ended without reading everything.
func TestChannelGivesTheLastWordBeforeAReset(t *testing.T) {
	ours, theirs, err := NewChannelPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if err := errors.Join(ours.Send("unread"), theirs.Send("first"), theirs.Send("last"), theirs.Close()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", "last"} {
		var got string
		if _, err := ours.Receive(&got); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if _, err := ours.Receive(new(string)); !errors.Is(err, io.EOF) {
		t.Errorf("end: got %v, want EOF", err)
	}
}

// Whoever gives up while another goroutine waits for the peer's next word must not
// leave the peer waiting in turn: a blocked recvmsg(2) keeps a closed socket open.
func TestChannelHangsUpWhileItIsRead(t *testing.T) {
	ours, theirs := channels(t)
	tid, read := make(chan int), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		_, err := ours.receive()
		read <- err
	}()
	waits := fmt.Sprintf("/proc/self/task/%d/syscall", <-tid)
	for {
		now, err := os.ReadFile(waits)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(now), strconv.Itoa(unix.SYS_RECVMSG)+" ") {
			break
		}
		time.Sleep(time.Millisecond)
	}
	ours.HangUp()
	heard := make(chan error, 1)
	go func() {
		_, err := theirs.receive()
		heard <- err
	}()
	for who, end := range map[string]chan error{"the reader": read, "the peer": heard} {
		select {
		case err := <-end:
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s: got %v, want EOF", who, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s waits still", who)
		}
	}
	if err := ours.send(message{Op: opSignal}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("send: got %v, want %v", err, os.ErrClosed)
	}
}
