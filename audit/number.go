package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxNumber bounds what is read as a number of runs (digits).
const maxNumber = 18

// NumberRun gives a run its number among those of a record, from 1 on. The file
// at path holds how many there were. begin writes the run's first line; while it
// does, no other run gets a number, so that numbers and lines are in the same
// order. A run that cannot begin leaves its number to the next.
func NumberRun(path string, begin func(number int64) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("number the run: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	if err != nil {
		return &os.PathError{Op: "number the run: open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := lock(fd); err != nil {
		return &os.PathError{Op: "number the run: lock", Path: path, Err: err}
	}
	n, err := readNumber(f)
	if err != nil {
		return err
	}
	if err := begin(n + 1); err != nil {
		return err
	}
	// Numbers only get longer, so nothing of the old one remains.
	if _, err := f.WriteAt([]byte(strconv.FormatInt(n+1, 10)+"\n"), 0); err != nil {
		return fmt.Errorf("number the run: %w", err)
	}
	return nil
}

func lock(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}

func readNumber(f *os.File) (int64, error) {
	b, err := io.ReadAll(io.LimitReader(f, maxNumber+2))
	if err != nil {
		return 0, fmt.Errorf("read the number of runs: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || len(text) > maxNumber {
		return 0, fmt.Errorf("read the number of runs in %q: it holds no number", f.Name())
	}
	return n, nil
}

// Runs tells how many runs the record had, 0 where nobody counted.
func Runs(path string) (int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the number of runs: %w", err)
	}
	defer f.Close()
	return readNumber(f)
}

// absent gives the numbers between the first and the last that are missing, and
// those up to total.
func absent(numbers []int64, total int64) (gaps []Gap) {
	slices.Sort(numbers)
	if len(numbers) == 0 {
		return nil
	}
	next := numbers[0]
	for _, n := range append(numbers, total+1) {
		if n > next {
			gaps = append(gaps, Gap{next, n - 1})
		}
		next = max(next, n+1)
	}
	return gaps
}
