package credential

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

const (
	testSecret      = "sk-ant-api03-Zk9wQ/x+7VbN2mLr8TtYcA=="
	testPlaceholder = "sk-ant-api03-Ab1cD/e+2FgH3iJk4LmNoP=="
)

func testVault(t testing.TB) *Vault {
	t.Helper()
	v, err := New(map[string]policy.Credential{
		"api": {Attach: "bearer", Hosts: []policy.Name{{Text: "api.example.org"}}},
		"aws": {Attach: "sigv4", Hosts: []policy.Name{{Text: "s3.example.org"}}},
	}, map[string]Values{
		"api": {Secret: testSecret, Placeholder: testPlaceholder},
		"aws": {Secret: "AKIAQQ7WERTYUIOPASDF:wJalrXUtnFEMIK7MDENGbPxRfiCYzzzzzzzzKEYY", Placeholder: "AKIAZZ2XCVBNMLKJHGFD:qQqqqQQqqQQQQQ2QQQQQqQqQqqQQaaaaaaaaAAAA"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// encodings are the spellings in which a text must be found.
var encodings = map[string]func(string) string{
	"as it is":          func(s string) string { return s },
	"upper case":        strings.ToUpper,
	"lower case":        strings.ToLower,
	"in text":           func(s string) string { return "x" + s + "y" },
	"base64":            func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64 after 1":    func(s string) string { return base64.StdEncoding.EncodeToString([]byte("a" + s + "bcd")) },
	"base64 after 2":    func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte("ab" + s + "bcd")) },
	"base64 url":        func(s string) string { return base64.URLEncoding.EncodeToString([]byte("user:" + s)) },
	"base64 wrapped":    func(s string) string { return wrap(base64.StdEncoding.EncodeToString([]byte(s)), "\r\n") },
	"base64 in JSON":    func(s string) string { return `"` + wrap(base64.StdEncoding.EncodeToString([]byte(s)), `\n`) + `"` },
	"base64 in a query": func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
	"hex":               func(s string) string { return hex.EncodeToString([]byte(s)) },
	"upper hex":         func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"query":             url.QueryEscape,
	"path":              url.PathEscape,
	"all percent":       func(s string) string { return each(s, "%%%02x") },
	"all percent twice": func(s string) string { return each(s, "%%25%02X") },
	"percent thrice":    func(s string) string { return each(s, "%%2525%02X") },
	"every other":       func(s string) string { return everyOther(s, "%%%02x") },
	"all \\u":           func(s string) string { return each(s, `\u%04x`) },
	"some \\u":          func(s string) string { return everyOther(s, `\u%04X`) },
	"\\u in \\u":        func(s string) string { return each(s, `\u005cu%04X`) },
	"\\x":               func(s string) string { return each(s, `\x%02x`) },
	"escaped slash":     func(s string) string { return strings.ReplaceAll(s, "/", `\/`) },
	"percent in \\u":    func(s string) string { return each(s, `\u0025%02x`) },
	"html":              inHTML,
}

func each(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func everyOther(s, format string) string {
	var b strings.Builder
	for i, c := range []byte(s) {
		if i%2 == 0 {
			fmt.Fprintf(&b, format, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func wrap(s, line string) string {
	var b strings.Builder
	for len(s) > 19 {
		b.WriteString(s[:19] + line)
		s = s[19:]
	}
	return b.String() + s
}

func TestFind(t *testing.T) {
	v := testVault(t)
	for name, encode := range encodings {
		for _, c := range []struct {
			text string
			want Finding
		}{
			{testSecret, Finding{"api", false}},
			{testPlaceholder, Finding{"api", true}},
			{"wJalrXUtnFEMIK7MDENGbPxRfiCYzzzzzzzzKEYY", Finding{"aws", false}},
			{"AKIAZZ2XCVBNMLKJHGFD", Finding{"aws", true}},
		} {
			text := "noise % \\ sk-ant-api03-Zk " + encode(c.text) + " more"
			if got, ok := v.Find(text); !ok || got != c.want {
				t.Errorf("%s: got %v, %v, want %v", name, got, ok, c.want)
			}
		}
	}
}

func TestFindNothing(t *testing.T) {
	v := testVault(t)
	for _, text := range []string{
		"", "sk-ant-api03-", testSecret[:len(testSecret)-1], testPlaceholder[1:], `{"a":"\u0041"}`, "%", "%zz%2", `\`, `\u00`,
		strings.Repeat(testSecret[:20], 50), base64.StdEncoding.EncodeToString([]byte(testSecret[:20])),
	} {
		if got, ok := v.Find(text); ok {
			t.Errorf("%q: got %v, want nothing", text, got)
		}
	}
	if _, ok := (*Vault)(nil).Find(testSecret); ok {
		t.Error("no vault: got a finding, want none")
	}
}

// TestLeavingSplit has every spelling cut at every place.
func TestLeavingSplit(t *testing.T) {
	v := testVault(t)
	for name, encode := range encodings {
		body := []byte("before " + encode(testPlaceholder) + " after")
		for at := range body {
			r := io.NopCloser(io.MultiReader(bytes.NewReader(body[:at]), bytes.NewReader(body[at:])))
			got, err := io.ReadAll(v.Leaving(r))
			var found *Searched
			if !errors.As(err, &found) || found.Finding != (Finding{"api", true}) {
				t.Fatalf("%s, cut at %d: got %v, want the placeholder found", name, at, err)
			}
			if len(got) > len("before ")+len(encode(testPlaceholder))-4 {
				t.Fatalf("%s, cut at %d: got %q passed on, want most of it kept back", name, at, got)
			}
		}
		if _, err := io.ReadAll(v.Leaving(io.NopCloser(iotest.OneByteReader(bytes.NewReader(body))))); err == nil {
			t.Errorf("%s, byte by byte: got no error, want one", name)
		}
	}
}

// TestLeavingKeepsBack holds that hardly more than what every key of the kind
// begins with leaves before the rest is known.
func TestLeavingKeepsBack(t *testing.T) {
	v := testVault(t)
	r, w := io.Pipe()
	body := v.Leaving(r)
	go func() { _, _ = io.WriteString(w, "text "+testSecret[:len(testSecret)-1]) }()
	buf := make([]byte, 100)
	n, err := body.Read(buf)
	if got, want := string(buf[:n]), "text "; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	go func() { _, _ = io.WriteString(w, "?"); _ = w.Close() }()
	rest, err := io.ReadAll(body)
	if got, want := string(rest), testSecret[:len(testSecret)-1]+"?"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestStreamIsNotHeld holds that an event passes at once although it ends as a
// secret begins.
func TestStreamIsNotHeld(t *testing.T) {
	v := testVault(t)
	r, w := io.Pipe()
	body := v.Coming(r, func(Finding) {})
	for _, event := range []string{"data: s", "data: sk-ant-api03-", "\x00\x01A", "data: x\n\n"} {
		go func() { _, _ = io.WriteString(w, event) }()
		buf := make([]byte, 100)
		n, err := body.Read(buf)
		if got := string(buf[:n]); err != nil || got != event {
			t.Errorf("got %q, %v, want %q", got, err, event)
		}
	}
	_ = w.Close()
}

func TestComing(t *testing.T) {
	v := testVault(t)
	for name, encode := range encodings {
		body := "before " + encode(testSecret) + " between " + encode(testSecret) + " after"
		for _, read := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, func(r io.Reader) io.Reader { return r }} {
			met := 0
			got, err := io.ReadAll(v.Coming(io.NopCloser(read(strings.NewReader(body))), func(Finding) { met++ }))
			if met != 1 {
				t.Errorf("%s: got %d reports, want 1", name, met)
			}
			if _, found := v.FindSecret(string(got)); found {
				t.Errorf("%s: got a secret in %q", name, got)
			}
			if err == nil && len(got) != len(body) {
				t.Errorf("%s: got %d bytes, want %d", name, len(got), len(body))
			}
			if err != nil && !errors.Is(err, errScrub) {
				t.Errorf("%s: got %v, want an end because of the secret", name, err)
			}
		}
	}
	got, err := io.ReadAll(v.Coming(io.NopCloser(strings.NewReader(`{"Authorization":"Bearer `+testSecret+`"}`)), func(Finding) {}))
	if want := `{"Authorization":"Bearer ` + testPlaceholder + `"}`; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestComingLeavesPlaceholders(t *testing.T) {
	v := testVault(t)
	text := "a " + testPlaceholder + " b"
	got, err := io.ReadAll(v.Coming(io.NopCloser(strings.NewReader(text)), func(Finding) {}))
	if err != nil || string(got) != text {
		t.Errorf("got %q, %v, want it untouched", got, err)
	}
}

func TestScrub(t *testing.T) {
	v := testVault(t)
	got, changed, ok := v.Scrub("a " + testSecret + " b")
	if want := "a " + testPlaceholder + " b"; got != want || !changed || !ok {
		t.Errorf("got %q, %v, %v, want %q", got, changed, ok, want)
	}
	if got, _, ok := v.Scrub(each(testSecret, "%%%02x")); ok || got != "" {
		t.Errorf("got %q, %v, want it refused", got, ok)
	}
}

func TestLearn(t *testing.T) {
	v := testVault(t)
	const token = "ya29.a0AfB_accesstokenaccesstoken"
	if _, ok := v.Find(token); ok {
		t.Fatal("got it found before it was learnt")
	}
	v.Learn("api", token)
	if got, ok := v.Find("x " + token); !ok || got != (Finding{"api", false}) {
		t.Errorf("got %v, %v, want the secret of api", got, ok)
	}
	for i := range 3 * maxLearnt {
		v.Learn("api", fmt.Sprintf("%s-%d", token, i))
	}
	if got := len(v.extra); got != maxLearnt {
		t.Errorf("got %d texts, want %d", got, maxLearnt)
	}
}

func TestLongSecrets(t *testing.T) {
	long := strings.Repeat("aB3d", 2000) + "Zk9wQxx7VbN2mLr8TtYcA"
	v, err := New(map[string]policy.Credential{"api": {Attach: "bearer"}}, map[string]Values{"api": {Secret: long, Placeholder: Placeholder(long)}})
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := v.Find("x" + long + "y"); !ok || got != (Finding{"api", false}) {
		t.Errorf("got %v, %v, want it found", got, ok)
	}
	if got, ok := v.Find(Placeholder(long)); ok {
		t.Errorf("got %v, want nothing", got)
	}
	if n := len(v.now.Load().leaving.ends); n > 20000 {
		t.Errorf("got %d states, want few", n)
	}
}

func TestNewRefuses(t *testing.T) {
	spec := map[string]policy.Credential{"a": {Attach: "bearer"}, "b": {Attach: "bearer"}}
	good := Values{Secret: "0123456789", Placeholder: "abcdefghij"}
	for name, b := range map[string]Values{
		"none":              {},
		"short secret":      {Secret: "1234567", Placeholder: "placeholder-b"},
		"short placeholder": {Secret: "0123456789", Placeholder: "short"},
		"the same":          {Secret: "0123456789", Placeholder: "0123456789"},
		"secret inside":     {Secret: "0123456789", Placeholder: "x0123456789"},
		"line end":          {Secret: "0123456789\n", Placeholder: "placeholder-b"},
		"placeholder twice": {Secret: "9876543210", Placeholder: good.Placeholder},
	} {
		_, err := New(spec, map[string]Values{"a": good, "b": b})
		if err == nil || strings.Contains(err.Error(), "123456") || !strings.Contains(err.Error(), `"b"`) {
			t.Errorf("%s: got %v, want an error about b without the secret", name, err)
		}
	}
}

func TestNothingPrints(t *testing.T) {
	v := testVault(t)
	c := v.Get("api")
	keys, _ := ParseKeys(v.Get("aws").values.Secret)
	printed := fmt.Sprintf("%v %+v %#v %s %v %+v %#v %v %#v", c, c, c, c, c.values, c.values, c.values, keys, keys)
	for _, secret := range []string{testSecret, testPlaceholder, "wJalr"} {
		if strings.Contains(printed, secret) {
			t.Errorf("got %q in what was printed", secret)
		}
	}
}

func BenchmarkLeaving(b *testing.B) {
	v := testVault(b)
	random := rand.New(rand.NewPCG(1, 2))
	bytesOf := func() []byte {
		p := make([]byte, 1<<20)
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		return p
	}
	for name, p := range map[string][]byte{
		"json":   bytes.Repeat([]byte(`{"role":"user","content":"Please read the file src/main.go and tell me what it does.\nThen fix it."},`), 10000),
		"binary": bytesOf(),
		"base64": []byte(base64.StdEncoding.EncodeToString(bytesOf())),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				if _, err := io.Copy(io.Discard, v.Leaving(io.NopCloser(bytes.NewReader(p)))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
