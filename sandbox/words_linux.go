package sandbox

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// words is the standard error of the stages inside, which is not the command's:
// only the Go runtime writes there, when it cannot go on, and what it writes is
// long and can hold anything. Nobody has to read while it is written.
type words struct{ f *os.File }

// maxWords is how far its reader looks.
const maxWords = 16 << 10

func newWords() (words, error) {
	fd, err := unix.MemfdCreate("hermes-wrap-words", unix.MFD_CLOEXEC)
	if err != nil {
		return words{}, fmt.Errorf("memfd_create %q: %w", "hermes-wrap-words", err)
	}
	return words{os.NewFile(uintptr(fd), "words")}, nil
}

// cause gives what the runtime said it ended of, in its own words, as ": cause".
func (w words) cause() string {
	if w.f == nil {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(w.f, 0, maxWords))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		for _, begin := range []string{"runtime: ", "runtime/cgo: ", "fatal error: ", "panic: runtime error: "} {
			if strings.HasPrefix(line, begin) {
				return ": " + line
			}
		}
	}
	return ""
}

func (w words) close() {
	if w.f != nil {
		w.f.Close()
	}
}
