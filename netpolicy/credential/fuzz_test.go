package credential

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// pieces gives a reader that ends a read at each of the places that cuts names.
func pieces(body []byte, cuts []byte) io.ReadCloser {
	var readers []io.Reader
	for _, c := range cuts {
		n := min(int(c), len(body))
		readers = append(readers, bytes.NewReader(body[:n]))
		body = body[n:]
	}
	return io.NopCloser(io.MultiReader(append(readers, bytes.NewReader(body))...))
}

// FuzzSplit holds that a text is found in every spelling, whatever is around it
// and wherever the pieces end.
func FuzzSplit(f *testing.F) {
	v := testVault(f)
	names := slices.Sorted(maps.Keys(encodings))
	f.Add([]byte("before"), []byte("after"), []byte{3, 1, 7}, uint8(0))
	f.Add([]byte("sk-ant-api03-Ab1c%"), []byte(`\`), []byte{0, 250}, uint8(9))
	f.Add([]byte(`\u00`), []byte{}, []byte{1, 1, 1, 1, 1, 1}, uint8(14))
	f.Fuzz(func(t *testing.T, before, after, cuts []byte, which uint8) {
		name := names[int(which)%len(names)]
		// An escape that is left open takes the first character with it, as it
		// would for whoever reads the body.
		body := slices.Concat(before, []byte("    "), []byte(encodings[name](testSecret)), after)
		_, err := io.ReadAll(v.Leaving(pieces(body, cuts)))
		var found *Searched
		if !errors.As(err, &found) {
			t.Errorf("%s: got %v, want the secret found in %q", name, err, body)
		}
	})
}

// FuzzScrub holds that nothing is found in what was scrubbed, that its length is
// that of the original, and that a body without a secret is not touched.
func FuzzScrub(f *testing.F) {
	v := testVault(f)
	names := slices.Sorted(maps.Keys(encodings))
	f.Add([]byte("before"), []byte("after"), []byte{3, 1, 7}, uint8(0))
	f.Add([]byte("sk-ant-api03-Zk9w%"), []byte(`\`), []byte{20, 20}, uint8(9))
	f.Fuzz(func(t *testing.T, before, after, cuts []byte, which uint8) {
		name := names[int(which)%len(names)]
		for _, body := range [][]byte{slices.Concat(before, []byte(encodings[name](testSecret)), after), before} {
			met := false
			got, err := io.ReadAll(v.Coming(pieces(body, cuts), func(Finding) { met = true }))
			if err != nil && !errors.Is(err, errScrub) {
				t.Fatal(err)
			}
			if _, found := v.FindSecret(string(got)); found {
				t.Errorf("%s: got a secret left in %q", name, got)
			}
			if err == nil && len(got) != len(body) {
				t.Errorf("%s: got %d bytes, want %d", name, len(got), len(body))
			}
			if !met && !bytes.Equal(got, body) {
				t.Errorf("%s: got %q, want %q", name, got, body)
			}
		}
	})
}

// FuzzPlaceholder holds what placeholders promise.
func FuzzPlaceholder(f *testing.F) {
	for _, s := range shapes {
		f.Add(s.secret)
	}
	f.Fuzz(func(t *testing.T, secret string) {
		if len(secret) < minSecret || Printable(secret) != nil || len(secret) > 4096 {
			return
		}
		checkPlaceholder(t, secret, Placeholder(secret))
		v, err := New(map[string]policy.Credential{"a": {Attach: "bearer"}}, map[string]Values{"a": {Secret: secret, Placeholder: Placeholder(secret)}})
		if err != nil {
			t.Fatalf("%q: %v", secret, err)
		}
		if _, found := v.FindSecret(Placeholder(secret)); found {
			t.Errorf("%q: got the secret found in a placeholder", secret)
		}
	})
}
