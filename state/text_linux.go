package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"golang.org/x/sys/unix"
)

// maxSum is how much of a file is read for its checksum (bytes). A file may have
// any size that the agent likes and take no room.
const maxSum = 64 << 20

// MaxText is the size above which content is summarised and not compared by line.
const MaxText = 1 << 20

// Text is a change of content for people. Its text is the agent's: escape it.
type Text struct {
	// Unified is a unified diff without escapes; "" where Summary stands instead.
	Unified string
	// Summary says what binary or large files are.
	Summary string
}

// Text compares the content of one change.
func (l *Layer) Text(c Change) (Text, error) {
	if c.Old.Type != File && c.New.Type != File || c.Held != "" {
		return Text{}, nil
	}
	old, err := side(int(l.host.Fd()), c.Path, c.Old)
	if err != nil {
		return Text{}, fmt.Errorf("read %q on the host: %w", c.Path, err)
	}
	now, err := side(int(l.data.Fd()), c.Path, c.New)
	if err != nil {
		return Text{}, fmt.Errorf("read %q in the layer: %w", c.Path, err)
	}
	if old.text && now.text {
		return Text{Unified: unified(c, old, now)}, nil
	}
	if c.Kind == Deleted {
		return Text{Summary: old.words()}, nil
	}
	if c.Old.Type != File {
		return Text{Summary: now.words()}, nil
	}
	return Text{Summary: old.words() + " -> " + now.words()}, nil
}

func unified(c Change, old, now content) string {
	from, to := oneLine("a/"+c.Path), oneLine("b/"+c.Path)
	if c.Old.Type != File {
		from = "/dev/null"
	}
	if c.New.Type != File {
		to = "/dev/null"
	}
	return udiff.Unified(from, to, string(old.bytes), string(now.bytes))
}

// oneLine quotes a path, as git does, that would be several lines of a diff.
func oneLine(path string) string {
	if strings.ContainsFunc(path, unicode.IsControl) {
		return strconv.Quote(path)
	}
	return path
}

// content is one side of a comparison.
type content struct {
	bytes []byte
	size  int64
	sum   string
	text  bool
}

func (c content) words() string {
	kind := "binary"
	if c.size > MaxText {
		kind = "large"
	}
	if c.sum == "" {
		return fmt.Sprintf("%s, %d bytes", kind, c.size)
	}
	return fmt.Sprintf("%s, %d bytes, sha256 %s", kind, c.size, c.sum)
}

func side(root int, path string, e Entry) (content, error) {
	if e.Type != File {
		return content{text: true}, nil
	}
	f, err := openFile(root, path, unix.O_RDONLY)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return content{text: true}, nil // a moving picture
		}
		return content{}, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() > maxSum {
		return content{size: e.Size}, err
	}
	h := sha256.New()
	var b bytes.Buffer
	if _, err := io.Copy(&b, io.LimitReader(io.TeeReader(f, h), MaxText+1)); err != nil {
		return content{}, err
	}
	n, err := io.Copy(h, io.LimitReader(f, maxSum))
	if err != nil {
		return content{}, err
	}
	c := content{size: int64(b.Len()) + n, sum: hex.EncodeToString(h.Sum(nil)[:8])}
	if b.Len() <= MaxText && utf8.Valid(b.Bytes()) && bytes.IndexByte(b.Bytes(), 0) < 0 {
		c.text, c.bytes = true, b.Bytes()
	}
	return c, nil
}
