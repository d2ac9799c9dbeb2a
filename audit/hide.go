package audit

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
)

// minSecret is the length (bytes) below which a text is no secret worth the
// name: hiding it would take words out of every line.
const minSecret = 4

// minEncoded is the same for what remains of a secret in base64.
const minEncoded = 8

// hider takes secrets out of text.
type hider struct {
	secrets []string // what was asked for
	with    *strings.Replacer
}

// Hide has the secrets, and placeholders for them, left out of every event from
// now on, also where they are percent-encoded, in hex, in lower case, or in
// base64 as a part of something longer. It adds to those that are hidden
// already. Texts of less than four bytes are not hidden.
func (l *Log) Hide(secrets ...string) {
	if l == nil {
		return
	}
	for {
		old := l.hidden.Load()
		var all []string
		if old != nil {
			all = slices.Clone(old.secrets)
		}
		for _, s := range secrets {
			if len(s) >= minSecret && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
		if len(all) == 0 {
			return
		}
		if l.hidden.CompareAndSwap(old, newHider(all)) {
			return
		}
	}
}

func newHider(secrets []string) *hider {
	var forms []string
	for _, s := range secrets {
		forms = append(forms, formsOf(s)...)
	}
	slices.Sort(forms)
	forms = slices.Compact(forms)
	// Of two that begin at the same place the longer one goes first.
	slices.SortStableFunc(forms, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(forms))
	for _, f := range forms {
		pairs = append(pairs, f, hidden)
	}
	return &hider{secrets: secrets, with: strings.NewReplacer(pairs...)}
}

// formsOf gives the ways in which a secret can stand in a text.
func formsOf(s string) []string {
	h := hex.EncodeToString([]byte(s))
	forms := []string{s, strings.ToLower(s), h, strings.ToUpper(h)}
	for shift := range 3 {
		padded := append(make([]byte, shift), s...)
		// The first and last characters hold bits of the neighbours as well.
		from, to := (shift*8+5)/6, len(padded)*8/6
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if core := e.EncodeToString(padded)[from:to]; len(core) >= minEncoded {
				forms = append(forms, core)
			}
		}
	}
	return forms
}

// text gives s without secrets.
func (h *hider) text(s string) string {
	if h == nil || s == "" {
		return s
	}
	s = h.with.Replace(s)
	// Whatever mixture of percent signs and case was used, and however often:
	// what reads as the secret when decoded is shown decoded and cut.
	for plain, rounds := s, 0; rounds < 3 && strings.Contains(plain, "%"); rounds++ {
		decoded := decodePercent(plain)
		if decoded == plain {
			break
		}
		if cut := h.with.Replace(decoded); cut != decoded {
			return h.text(cut)
		}
		plain = decoded
	}
	return s
}

// decodePercent decodes what is well-formed and leaves the rest.
func decodePercent(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := hex.DecodeString(s[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// clean prepares every text of an event: without secrets, and cut to maxField.
func (h *hider) clean(e *Event) {
	for _, s := range []*string{
		&e.ID, &e.Host, &e.Addr, &e.Protocol, &e.Method, &e.Path, &e.Rule, &e.Pos, &e.Reason,
		&e.Operation, &e.Credential, &e.Model, &e.Route, &e.Policy, &e.Source, &e.Digest, &e.Version, &e.Command, &e.Service,
	} {
		*s = shorten(h.text(*s))
	}
	if len(e.Layers) > 0 {
		e.Layers = slices.Clone(e.Layers)
		for i := range e.Layers {
			e.Layers[i].Name, e.Layers[i].Mechanism = shorten(h.text(e.Layers[i].Name)), shorten(h.text(e.Layers[i].Mechanism))
		}
	}
	e.Degraded, e.Writers = h.texts(e.Degraded), h.texts(e.Writers)
}

func (h *hider) texts(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = shorten(h.text(s))
	}
	return out
}
