package strictjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/test/readers"
)

func TestParseRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"duplicate name":         `{"a":1,"a":2}`,
		"duplicate by escape":    `{"a":1,"\u0061":2}`,
		"duplicate deep down":    `[{"x":{"a":1,"a":2}}]`,
		"trailing value":         `{} {}`,
		"trailing text":          `{}x`,
		"byte order mark":        "\xef\xbb\xbf{}",
		"comment":                `{/*x*/}`,
		"NaN":                    `NaN`,
		"invalid UTF-8":          "\"\xff\"",
		"lone surrogate":         `"\ud800"`,
		"cut off":                `{"a":[1`,
		"empty":                  ``,
		"depth":                  strings.Repeat("[", 100_000),
		"single quotes":          `{'a':1}`,
		"leading zero":           `01`,
		"control byte in string": "\"\x01\"",
	} {
		t.Run(name, func(t *testing.T) {
			if v, err := Parse([]byte(in)); err == nil {
				t.Fatalf("got %s, want an error", v.Append(nil))
			}
		})
	}
}

func TestRoundTrip(t *testing.T) {
	const in = ` { "b" : [ 1.50 , -0 , 1e400, null, true ], "a":"\u00e9\ud83d\ude00\n" } `
	const want = "{\"b\":[1.50,-0,1e400,null,true],\"a\":\"é😀\\n\"}"
	v, err := Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(v.Append(nil)); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestLookup(t *testing.T) {
	v, err := Parse([]byte(`{"params":{"arguments":{"a/b":[{"x":7}]},"Arguments":{}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Lookup("/params/arguments/a~1b/0/x"); err == nil {
		t.Fatal("a spelling in another case was not refused")
	}
	inner := v.Get("params").Without("Arguments")
	if got, err := inner.Lookup("/arguments/a~1b/0/x"); err != nil || got.Text() != "7" {
		t.Fatalf("got %q, %v, want 7", got.Text(), err)
	}
	if got, err := inner.Lookup("/arguments/a~1b/1"); err != nil || got.Kind() != Invalid {
		t.Fatalf("got %v, %v, want nothing", got, err)
	}
	out, err := inner.Replace("/arguments/a~1b/0/x", TextOf("y"))
	if err != nil || string(out.Append(nil)) != `{"arguments":{"a/b":[{"x":"y"}]}}` {
		t.Fatalf("got %s, %v", out.Append(nil), err)
	}
}

// FuzzParse: what is accepted has one value, the same for encoding/json, Node and
// Python, and so has what is written of it; writing is idempotent. What one of
// them does not read, or of two members reads one, is refused.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2,{"b":null}]}`, `"\u0041"`, `1e5`, `[]`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"__proto__":{"x":1},"constructor":2}`, `"\ud83d\ude00"`, `"\ud800"`,
		`-0`, `1e400`, `0.1E-7`, `123456789012345678901234567890.5`, "\ufeff{}", "\"\u2028\u0000\"", ` [ true , false ] `, `{"10":1,"2":2,"":3}`, `[1]]`, `NaN`, "\"\x7f\"", `{"a":1}` + "\x00",
		`"\/\b\f\n\r\t\"\\"`, "\"\xff\"", "[1,]", "{\"a\":01}", "\v1", "\u00a01", "1\u2028",
	} {
		f.Add([]byte(s))
	}
	all := readers.JSONs(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse(b)
		if err != nil {
			return
		}
		once := v.Append(nil)
		again, err := Parse(once)
		if err != nil {
			t.Fatalf("%q was read, but not what was written of it: %v", b, err)
		}
		if twice := again.Append(nil); string(once) != string(twice) {
			t.Fatalf("got %q, want %q", twice, once)
		}
		want := readers.Form(plain(v))
		for _, text := range [][]byte{b, once} {
			var std any
			d := json.NewDecoder(bytes.NewReader(text))
			d.UseNumber()
			if err := d.Decode(&std); err != nil || d.InputOffset() != int64(len(bytes.TrimRight(text, " \t\r\n"))) {
				t.Fatalf("%q was read, but not by encoding/json: %v", text, err)
			}
			if got := readers.Form(std); got != want {
				t.Fatalf("encoding/json reads %q as %s, want %s", text, got, want)
			}
			for _, r := range all {
				if got, ok := r.JSON(t, string(text)); !ok || got != want {
					t.Fatalf("%s reads %q as %s, want %s", r.Name, text, got, want)
				}
			}
		}
	})
}

// plain gives a value as encoding/json has it.
func plain(v Value) any {
	switch v.Kind() {
	case Bool:
		return v.Text() == "true"
	case Number:
		return json.Number(v.Text())
	case String:
		return v.Text()
	case Array:
		all := []any{}
		for _, item := range v.Items() {
			all = append(all, plain(item))
		}
		return all
	case Object:
		all := map[string]any{}
		for _, m := range v.Members() {
			all[m.Name] = plain(m.Value)
		}
		return all
	}
	return nil
}
