package audit

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
)

const testSecret = "sk-Live+/0123456789?abc=="

// hostileForms are the ways in which a secret can come into a text.
func hostileForms() map[string]string {
	s := testSecret
	var everyByte strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&everyByte, "%%%02x", s[i])
	}
	return map[string]string{
		"plain": s, "inside": "x" + s + "y", "lower case": strings.ToLower(s), "path": url.PathEscape(s), "query": url.QueryEscape(s),
		"every byte": everyByte.String(), "upper hex": strings.ToUpper(everyByte.String()), "one byte": "%73" + s[1:],
		"twice": url.QueryEscape(url.QueryEscape(s)), "broken": "%zz" + url.QueryEscape(s),
		"base64": base64.StdEncoding.EncodeToString([]byte(s)), "base64 of more": base64.StdEncoding.EncodeToString([]byte("user:" + s)),
		"base64 in the middle": base64.RawURLEncoding.EncodeToString([]byte("ab" + s + "tail")), "hex": hex.EncodeToString([]byte(s)),
		"hex upper": strings.ToUpper(hex.EncodeToString([]byte(s))), "at the cut": strings.Repeat("x", maxField-len(s)+4) + s,
	}
}

// A secret is in no line, whatever field an agent or a server brings it in by.
func TestHideCoversEveryField(t *testing.T) {
	for name, form := range hostileForms() {
		t.Run(name, func(t *testing.T) {
			for _, kind := range kinds {
				e := full(kind, Deny)
				fields := fill(reflect.ValueOf(&e).Elem(), form)
				if fields < 18 {
					t.Fatalf("control: got %d fields filled, want all texts", fields)
				}
				l, path := openTemp(t)
				e.Kind, e.Run, e.Writer = kind, "", ""
				if err := l.Write(e); err != nil {
					t.Fatal(err)
				}
				if !leaks(t, path) {
					t.Fatalf("control: got no secret in the line, want one while nothing is hidden")
				}
				l.Hide(testSecret)
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
				if err := l.Write(e); err != nil {
					t.Fatal(err)
				}
				if leaks(t, path) {
					b, _ := os.ReadFile(path)
					t.Fatalf("%s: got the secret in %s", kind, b)
				}
			}
		})
	}
}

// fill puts text into every string of an event, and counts them.
func fill(v reflect.Value, text string) (n int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return 1
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() && v.Type().Field(i).Name != "Time" {
				n += fill(v.Field(i), text)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			n += fill(v.Index(i), text)
		}
	}
	return n
}

// leaks looks for the secret as a reader of the record could find it.
func leaks(t *testing.T, path string) bool {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ToLower(string(b))
	decoded := text
	for range 3 {
		decoded = strings.ToLower(decodePercent(decoded))
		text += decoded
	}
	wanted := []string{strings.ToLower(testSecret), strings.ToLower(testSecret[:len(testSecret)-4]), hex.EncodeToString([]byte(testSecret))}
	for shift := range 3 {
		padded := append(make([]byte, shift), testSecret...)
		wanted = append(wanted,
			strings.ToLower(base64.RawStdEncoding.EncodeToString(padded)[4:len(padded)*8/6]),
			strings.ToLower(base64.RawURLEncoding.EncodeToString(padded)[4:len(padded)*8/6]))
	}
	for _, w := range wanted {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

func TestHideKeepsTheRest(t *testing.T) {
	l, path := openTemp(t)
	l.Hide(testSecret, "", "abc", "placeholder-1")
	l.Hide("second-secret")
	if err := l.Write(Event{Kind: KindRequest, Verdict: Deny, Host: "abc.example", Path: "/100%/a%2Fb", Reason: "met placeholder-1 and second-secret in the path"}); err != nil {
		t.Fatal(err)
	}
	got := readEvents(t, path)[0]
	if got.Host != "abc.example" || got.Path != "/100%/a%2Fb" {
		t.Errorf("got %q %q, want them unchanged", got.Host, got.Path)
	}
	if want := "met [redacted] and [redacted] in the path"; got.Reason != want {
		t.Errorf("got %q, want %q", got.Reason, want)
	}
}
