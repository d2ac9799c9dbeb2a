package credential

import (
	"errors"
	"io"
)

// errScrub ends an answer with a secret in it that nothing can stand for.
var errScrub = errors.New("read answer: it holds a secret in a spelling that cannot be replaced")

// Scrub replaces secrets in a text that comes in by placeholders of the same
// length. ok is false when that cannot be done.
func (v *Vault) Scrub(text string) (clean string, changed, ok bool) {
	if v.Empty() {
		return text, false, true
	}
	now := v.now.Load()
	s := scanner{m: now.coming}
	b := []byte(text)
	for begin := 0; begin < len(b); {
		hit, found := s.scan(b[begin:])
		if !found {
			break
		}
		begin += hit.end
		if !now.coming.replace(b[:begin], hit) {
			return "", true, false
		}
		changed = true
	}
	return string(b), changed, true
}

// Coming gives a body in which secrets are replaced by placeholders of the same
// length, and which fails where that cannot be done. met is told of each, once.
func (v *Vault) Coming(body io.ReadCloser, met func(Finding)) io.ReadCloser {
	now := v.now.Load()
	seen := map[Finding]bool{}
	return &filter{src: body, s: scanner{m: now.coming}, found: func(p []byte, hit match) error {
		f := now.finding(now.coming, hit)
		if !seen[f] {
			seen[f] = true
			met(f)
		}
		if !now.coming.replace(p, hit) {
			return errScrub
		}
		return nil
	}}
}

// replace puts what stands for a text in its place, at the end of p. What was
// passed on already is the same in both or too little to matter, see slack.
func (m *machine) replace(p []byte, hit match) bool {
	t := m.texts[hit.text]
	if !hit.plain || t.instead == "" {
		return false
	}
	at := len(p) - len(t.instead)
	if at < 0 {
		copy(p, t.instead[-at:])
		return true
	}
	copy(p[at:], t.instead)
	return true
}

// Watch takes secrets out of a text that comes in pieces. Whoever passes it on
// keeps back what Held says, and shows it again before the next piece.
type Watch struct {
	now *search
	s   scanner
}

// Watch begins a text. An empty vault gives nil, which finds nothing.
func (v *Vault) Watch() *Watch {
	if v.Empty() {
		return nil
	}
	now := v.now.Load()
	return &Watch{now: now, s: scanner{m: now.coming}}
}

// Clean replaces secrets in a piece, of which the first kept bytes were kept back
// and are searched already. ok is false when that cannot be done; found holds
// what there was, if anything.
func (w *Watch) Clean(p []byte, kept int) (found []Finding, ok bool) {
	if w == nil {
		return nil, true
	}
	for begin := kept; begin < len(p); {
		hit, any := w.s.scan(p[begin:])
		if !any {
			break
		}
		begin += hit.end
		found = append(found, w.now.finding(w.now.coming, hit))
		if !w.now.coming.replace(p[:begin], hit) {
			return found, false
		}
	}
	return found, true
}

// Held is how many of the last bytes could be the beginning of a secret.
func (w *Watch) Held() int {
	if w == nil {
		return 0
	}
	return w.s.held()
}
