package escape

import (
	"bytes"
	"io"
	"strings"
	"time"
)

// progress tells now and then how many results were printed, keeps the end of
// what it read, and passes on at once what is no good news of ours.
type progress struct {
	say   func(string, ...any)
	every time.Duration
	// peers says that other sandboxes are run, of which an escape is no news.
	peers bool

	line    bytes.Buffer
	results int
	told    time.Time
	kept    []string
}

var _ io.Writer = (*progress)(nil)

func (p *progress) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' {
			p.line.WriteByte(c)
			continue
		}
		p.read(p.line.String())
		p.line.Reset()
	}
	return len(b), nil
}

func (p *progress) read(line string) {
	const most = 20
	p.kept = append(p.kept[max(0, len(p.kept)+1-most):], line)
	fields := strings.Fields(line)
	if strings.HasPrefix(line, " ") || len(fields) < 4 {
		return
	}
	p.results++
	switch Status(fields[3]) {
	case StatusEscaped, StatusFailed:
		if !p.peers {
			p.say("%s", line)
		}
	}
	if time.Since(p.told) >= p.every {
		p.say("escapes: %d results", p.results)
		p.told = time.Now()
	}
}

// end is the end of what was read.
func (p *progress) end(lines int) string {
	all := append(p.kept, p.line.String())
	return lastLines(strings.Join(all, "\n"), lines)
}
