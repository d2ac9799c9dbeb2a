package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNotification is the largest message that is read, as in systemd (bytes).
const MaxNotification = 4096

// Notification is one message of sd_notify(3), as far as it is understood.
type Notification struct {
	Ready     bool
	Reloading bool
	Stopping  bool
	// Watchdog is "1" (it is alive) or "trigger" (it wants to be ended).
	Watchdog string
	// Status says in a line what it is doing.
	Status string
	// Extend is how much more time it asks for (microseconds); 0: none.
	Extend uint64
	// MainPid is its process id, which means something inside only.
	MainPid int
	// Ignored are the keys that have no meaning here.
	Ignored []string
}

// ParseNotification reads a message: lines of the form KEY=VALUE. One that is
// not well formed is refused as a whole.
func ParseNotification(b []byte) (n Notification, err error) {
	if len(b) == 0 || len(b) > MaxNotification {
		return n, fmt.Errorf("a message of %d bytes", len(b))
	}
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return n, errors.New("a message that is not text")
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || !notifyKey(key) {
			return Notification{}, errors.New("a message with a line that is not KEY=VALUE")
		}
		if err := n.set(key, value); err != nil {
			return Notification{}, err
		}
	}
	return n, nil
}

func notifyKey(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' }) < 0
}

func (n *Notification) set(key, value string) (err error) {
	flag := func(to *bool) error {
		if value != "1" {
			return fmt.Errorf("%s is not 1", key)
		}
		*to = true
		return nil
	}
	switch key {
	case "READY":
		return flag(&n.Ready)
	case "RELOADING":
		return flag(&n.Reloading)
	case "STOPPING":
		return flag(&n.Stopping)
	case "STATUS":
		n.Status = printable(value)
	case "WATCHDOG":
		if value != "1" && value != "trigger" {
			return errors.New("WATCHDOG is neither 1 nor trigger")
		}
		n.Watchdog = value
	case "EXTEND_TIMEOUT_USEC":
		n.Extend, err = strconv.ParseUint(value, 10, 64)
	case "MAINPID":
		n.MainPid, err = strconv.Atoi(value)
	default:
		if !slices.Contains(n.Ignored, key) {
			n.Ignored = append(n.Ignored, key)
		}
	}
	return err
}

// printable replaces what acts on a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, s)
}

// Relay gives the message as it is passed on to the service manager outside;
// empty when there is nothing to pass on. Process ids inside mean nothing
// outside. A service that stops only to be started again does not end the run,
// so STOPPING=1 passes when the run is ending. RELOADING=1 would need an answer
// in the outside's own clock and is left out.
func (n Notification) Relay(ending bool) string {
	var lines []string
	if n.Ready {
		lines = append(lines, "READY=1")
	}
	if n.Stopping && ending {
		lines = append(lines, "STOPPING=1")
	}
	if n.Status != "" {
		lines = append(lines, "STATUS="+n.Status)
	}
	if n.Watchdog != "" {
		lines = append(lines, "WATCHDOG="+n.Watchdog)
	}
	if n.Extend > 0 {
		lines = append(lines, "EXTEND_TIMEOUT_USEC="+strconv.FormatUint(n.Extend, 10))
	}
	return strings.Join(lines, "\n")
}
