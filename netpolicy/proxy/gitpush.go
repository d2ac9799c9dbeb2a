package proxy

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"slices"
	"strings"
)

const (
	// maxPushCommands bounds what comes before the pack (bytes): some 10,000 refs.
	maxPushCommands = 2 << 20
	// maxPacket is the longest pkt-line (gitprotocol-common(5)).
	maxPacket = 65520
)

// pushError says what is wrong with the commands of a push.
type pushError string

func (e pushError) Error() string { return string(e) }

const (
	errPushMalformed = pushError("the commands of the push are malformed")
	errPushSize      = pushError("the push has more commands than can be judged")
)

// pushCommand changes one ref: a new id of zeros deletes it, an old one of zeros
// makes it.
type pushCommand struct {
	ref          string
	capabilities string // of the first command
}

// readPushCommands reads the commands of a push up to and with the flush packet,
// and gives them with their bytes (gitprotocol-pack(5)). Only the spelling that
// git writes is taken, so that another reader finds the same. With an error about
// what they ask for, the commands are there all the same.
func readPushCommands(in *bufio.Reader) (commands []pushCommand, raw []byte, err error) {
	var more error
	for {
		line, packet, err := readPacket(in)
		if err != nil {
			return nil, nil, err
		}
		if raw = append(raw, packet...); len(raw) > maxPushCommands {
			return nil, nil, errPushSize
		}
		if line == nil {
			return commands, raw, more
		}
		text, capabilities, hasNUL := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\x00")
		if id, ok := strings.CutPrefix(text, "shallow "); ok {
			if hasNUL || len(commands) > 0 || !isObjectID(id) {
				return nil, nil, errPushMalformed
			}
			continue
		}
		c, err := parsePushCommand(text)
		if err != nil {
			return nil, nil, err
		}
		if hasNUL != (len(commands) == 0) {
			return nil, nil, errPushMalformed // the first one has capabilities, and no other
		}
		c.capabilities = capabilities
		more = cmp.Or(more, checkCapabilities(capabilities))
		commands = append(commands, c)
	}
}

// readPacket reads one pkt-line. The line is nil for a flush packet.
func readPacket(in *bufio.Reader) (line, packet []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, nil, unexpected(err)
	}
	size := 0
	for _, c := range head {
		d, ok := hexDigit(c)
		if !ok || c >= 'A' && c <= 'F' {
			return nil, nil, errPushMalformed
		}
		size = size<<4 | int(d)
	}
	if size == 0 {
		return nil, head[:], nil
	}
	if size <= len(head) || size > maxPacket {
		return nil, nil, errPushMalformed
	}
	packet = append(make([]byte, 0, size), head[:]...)
	packet = packet[:size]
	if _, err := io.ReadFull(in, packet[len(head):]); err != nil {
		return nil, nil, unexpected(err)
	}
	return packet[len(head):], packet, nil
}

func parsePushCommand(text string) (pushCommand, error) {
	if text == "push-cert" {
		return pushCommand{}, pushError("signed pushes (push certificates) cannot be judged")
	}
	before, rest, ok := strings.Cut(text, " ")
	after, ref, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || !isObjectID(before) || !isObjectID(after) || len(before) != len(after) {
		return pushCommand{}, errPushMalformed
	}
	if !isRef(ref) {
		return pushCommand{}, pushError("the push names a ref that is malformed")
	}
	return pushCommand{ref: ref}, nil
}

// gitCapabilities are the capabilities that change nothing about what a push does
// (gitprotocol-capabilities(5)).
var gitCapabilities = []string{
	"report-status", "report-status-v2", "delete-refs", "side-band", "side-band-64k", "quiet", "atomic", "ofs-delta",
	"object-format", "agent", "session-id",
}

// checkCapabilities refuses what could make the push do more than its commands.
func checkCapabilities(list string) error {
	for _, c := range strings.Fields(list) {
		name, _, _ := strings.Cut(c, "=")
		switch name {
		case "push-options":
			return pushError("push options (git push -o) cannot be judged")
		case "push-cert":
			return pushError("signed pushes (push certificates) cannot be judged")
		}
		if !slices.Contains(gitCapabilities, name) {
			return pushError("the push asks for a capability that nobody here knows")
		}
	}
	return nil
}

func isObjectID(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}

// isRef allows what git-check-ref-format(1) does, below refs/.
func isRef(s string) bool {
	if !strings.HasPrefix(s, "refs/") || len(s) > 4096 || strings.HasSuffix(s, ".") {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f || strings.IndexByte(`~^:?*[\`, s[i]) >= 0 {
			return false
		}
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return !strings.Contains(s, "..") && !strings.Contains(s, "@{")
}

// report is how a refused push is answered in git's own words, so that its user
// reads the reason.
type report struct {
	refs     []string
	status   bool // report-status was asked for
	sideband bool
}

func reportFor(commands []pushCommand) *report {
	if len(commands) == 0 {
		return nil
	}
	r := &report{}
	for _, c := range commands {
		r.refs = append(r.refs, c.ref)
	}
	for _, c := range strings.Fields(commands[0].capabilities) {
		switch c {
		case "report-status", "report-status-v2":
			r.status = true
		case "side-band-64k":
			r.sideband = true
		}
	}
	return r
}

// packet frames a pkt-line.
func packet(line string) []byte {
	const digits = "0123456789abcdef"
	n := len(line) + 4
	return append([]byte{digits[n>>12&15], digits[n>>8&15], digits[n>>4&15], digits[n&15]}, line...)
}

// refuse writes the report: the pack was not looked at, and no ref was changed.
func (r *report) refuse(reason string) []byte {
	var list bytes.Buffer
	list.Write(packet("unpack ok\n"))
	for _, ref := range r.refs {
		list.Write(packet("ng " + ref + " " + reason + "\n"))
	}
	list.WriteString("0000")
	if !r.sideband {
		return list.Bytes()
	}
	var out bytes.Buffer
	for b := list.Bytes(); len(b) > 0; {
		n := min(len(b), 65000)
		out.Write(packet("\x01" + string(b[:n])))
		b = b[n:]
	}
	out.WriteString("0000")
	return out.Bytes()
}
