package audit

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var kinds = Kinds()

// full gives an event with every field set.
func full(kind Kind, verdict Verdict) Event {
	code := 7
	return Event{
		Time: time.Date(2026, 11, 30, 22, 19, 48, 123456789, time.UTC), Run: "3453c04dd91561a8", Writer: "proxy", Sequence: 41,
		Kind: kind, Verdict: verdict, ID: "1d", Host: "api.example.org", Port: 8443, Addr: "203.0.113.7", Protocol: "h2",
		Method: "POST", Path: "/a/b?token=[redacted]", Status: 403, Rule: "github-read", Pos: "p.yaml:3:5", Reason: `not "allowed"`,
		Count: 3, Operation: "tools/call search", Credential: "github", Model: "m-1", Route: "main",
		InputTokens: 10, OutputTokens: 20, Cost: 0.0125, Estimated: true,
		Policy: "p", Source: "/p.yaml", Digest: "abc", Version: "v1", Command: "sh",
		Layers:   []Layer{{Name: "landlock", Enforced: true, Mechanism: "ABI 7"}, {Name: "cpu"}},
		Degraded: []string{"cpu"}, Service: "dashboard", ExitCode: &code, Writers: []string{"proxy"},
	}
}

func line(e Event) []byte { return append(appendEvent(nil, &e, "v1"), "}}"...) }

// What is written reads back as it was, whatever the kind and however many
// fields are set.
func TestDecodeGivesBackTheEvent(t *testing.T) {
	changes := map[string]func(*Event){
		"all":        func(*Event) {},
		"no call":    func(e *Event) { e.Operation = "" },
		"literal":    func(e *Event) { e.Host = "198.51.100.4" },
		"literal 6":  func(e *Event) { e.Host = "2001:db8::1" },
		"bare host":  func(e *Event) { e.Host, e.Addr = "198.51.100.4", "" },
		"no host":    func(e *Event) { e.Host = "" },
		"nowhere":    func(e *Event) { e.Host, e.Addr, e.Port = "", "", 0 },
		"no query":   func(e *Event) { e.Path = "/a" },
		"empty path": func(e *Event) { e.Path = "?" },
		"no status":  func(e *Event) { e.Status = 0 },
		"little": func(e *Event) {
			*e = Event{Time: e.Time, Run: e.Run, Writer: e.Writer, Sequence: e.Sequence, Kind: e.Kind, Verdict: e.Verdict}
		},
	}
	for _, kind := range kinds {
		for _, verdict := range []Verdict{"", Allow, Deny} {
			for name, change := range changes {
				t.Run(fmt.Sprintf("%s %s %s", kind, verdict, name), func(t *testing.T) {
					want := full(kind, verdict)
					change(&want)
					got, err := Decode(line(want))
					if err != nil {
						t.Fatal(err)
					}
					if !reflect.DeepEqual(got, want) {
						t.Errorf("got %+v, want %+v in %s", got, want, line(want))
					}
				})
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"torn": `{"time":17`, "empty": ``, "another's": `{"time":1,"class_uid":4001,"metadata":{"product":{"name":"other"},"event_code":"x"}}`,
		"no class": `{"metadata":{"product":{"name":"hermes-wrap"},"event_code":"x"}}`, "plain": `{"kind":"request"}`,
	} {
		t.Run(name, func(t *testing.T) {
			if e, err := Decode([]byte(text)); err == nil {
				t.Errorf("got %+v, want an error", e)
			}
		})
	}
}

// attribute is what the schema says of one.
type attribute struct {
	path string // of keys; "[0]" is the first element
	is   string // string, number, array, object
}

// Required attributes of OCSF 1.5.0, of the base event, each class, the objects
// in it, and the recommended ones that a reader needs to tell allowed from denied.
var (
	everywhere = []attribute{
		{"time", "number"},
		{"class_uid", "number"},
		{"category_uid", "number"},
		{"activity_id", "number"},
		{"type_uid", "number"},
		{"severity_id", "number"},
		{"status_id", "number"},
		{"metadata", "object"},
		{"metadata.version", "string"},
		{"metadata.product", "object"},
		{"metadata.product.name", "string"},
		{"metadata.product.vendor_name", "string"},
		{"metadata.product.version", "string"},
		{"metadata.uid", "string"},
		{"metadata.sequence", "number"},
		{"metadata.event_code", "string"},
		{"metadata.original_time", "string"},
		{"metadata.correlation_uid", "string"},
		{"unmapped", "object"},
	}
	underControl = []attribute{{"action_id", "number"}, {"disposition_id", "number"}, {"metadata.profiles", "array"}, {"metadata.profiles.[0]", "string"}}
	endpoints    = []attribute{{"src_endpoint.uid", "string"}, {"dst_endpoint", "object"}}
	perClass     = map[int][]attribute{
		classBase:      {},
		classFinding:   {{"finding_info.uid", "string"}, {"finding_info.title", "string"}, {"evidences", "array"}, {"evidences.[0]", "object"}},
		classNetwork:   append([]attribute{{"connection_info.direction_id", "number"}}, endpoints...),
		classHTTP:      append([]attribute{{"http_request", "object"}, {"http_request.url", "object"}}, endpoints...),
		classDNS:       append([]attribute{{"query.hostname", "string"}, {"answers.[0].rdata", "string"}, {"rcode_id", "number"}}, endpoints...),
		classLifecycle: {{"app.name", "string"}, {"app.version", "string"}},
		classAPI:       append([]attribute{{"actor.session.uid", "string"}, {"api.operation", "string"}, {"api.service.name", "string"}}, endpoints...),
		classError:     {{"message", "string"}},
	}
)

func TestRequiredAttributes(t *testing.T) {
	seen := map[int]bool{}
	for _, kind := range kinds {
		for _, verdict := range []Verdict{"", Allow, Deny} {
			for _, operation := range []string{"", "tools/call search"} {
				e := full(kind, verdict)
				e.Operation = operation
				t.Run(fmt.Sprint(kind, " ", verdict, " ", operation), func(t *testing.T) {
					var all map[string]any
					if err := json.Unmarshal(line(e), &all); err != nil {
						t.Fatal(err)
					}
					uid := int(all["class_uid"].(float64))
					seen[uid] = true
					want := slices.Concat(everywhere, perClass[uid])
					if verdict != "" {
						want = append(want, underControl...)
					}
					for _, a := range want {
						if got := typeAt(all, a.path); got != a.is {
							t.Errorf("%s of class %d: got %s, want %s", a.path, uid, got, a.is)
						}
					}
					if got, want := int(all["type_uid"].(float64)), uid*100+int(all["activity_id"].(float64)); got != want {
						t.Errorf("type_uid: got %d, want %d", got, want)
					}
					if got, want := int(all["category_uid"].(float64)), uid/1000; got != want {
						t.Errorf("category_uid: got %d, want %d", got, want)
					}
					if all["activity_id"].(float64) == activityOther && all["activity_name"] == nil {
						t.Error("activity_name: got none, want one for an activity of our own")
					}
				})
			}
		}
	}
	for uid := range perClass {
		if !seen[uid] {
			t.Errorf("class %d: got no event, want one", uid)
		}
	}
}

func typeAt(v any, path string) string {
	for key := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[key]
		case []any:
			if len(at) == 0 {
				return "nothing"
			}
			v = at[0]
		default:
			return "nothing"
		}
	}
	switch v.(type) {
	case string:
		return "string"
	case float64:
		return "number"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return "nothing"
}

// The hand-written encoder says the same as encoding/json, for any text.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", `q"u\o`, "a\nb\x00\x7f", "\u009b2J", "grüße 漢字 ✓", "\u202e\u2028\ufeff", "\U000e0041", "\xff\xfe", "\ufffd", "😀"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		j := writer{}
		j.quote(s)
		var got, want string
		if err := json.Unmarshal(j.b, &got); err != nil {
			t.Fatalf("%q: %v", j.b, err)
		}
		reference, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(reference, &want); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if e := Escape(string(j.b)); e != string(j.b) {
			t.Errorf("got %q, want it safe for a terminal", j.b)
		}
	})
}

func TestNumbers(t *testing.T) {
	for _, cost := range []float64{0.1, 1e-9, 1e21, 3, math.MaxFloat64} {
		e := Event{Kind: KindInference, Cost: cost, InputTokens: math.MaxInt64}
		got, err := Decode(line(e))
		if err != nil || got.Cost != cost || got.InputTokens != math.MaxInt64 {
			t.Errorf("cost %v: got %v, %v", cost, got.Cost, err)
		}
	}
	for _, cost := range []float64{math.NaN(), math.Inf(1)} {
		if _, err := Decode(line(Event{Kind: KindInference, Cost: cost})); err != nil {
			t.Errorf("cost %v: got %v, want a line that can be read", cost, err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	event := Event{
		Kind: KindRequest, Verdict: Allow, Host: "api.example.org", Port: 443, Protocol: "h2", Method: "GET",
		Path: "/repos/acme/thing/issues?page=[redacted]", Rule: "github-read", Pos: "/home/u/.config/hermes-wrap/p.yaml:12:7", Reason: "allowed by the rule",
	}
	open := func(b *testing.B) *Log {
		l, err := Open(filepath.Join(b.TempDir(), "audit.jsonl"), "3453c04dd91561a8")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = l.Close() })
		return l
	}
	write := func(b *testing.B, l *Log) {
		b.ReportAllocs()
		for b.Loop() {
			if err := l.Write(event); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("plain", func(b *testing.B) { write(b, open(b)) })
	b.Run("signed", func(b *testing.B) {
		l := open(b)
		if err := l.Sign("proxy", testKey.ForWriter("3453c04dd91561a8", "proxy")); err != nil {
			b.Fatal(err)
		}
		write(b, l)
	})
	b.Run("signed and hiding", func(b *testing.B) {
		l := open(b)
		l.Hide("sk-live-0123456789abcdef", "ghp_0123456789abcdefABCDEF", "another-secret-of-the-host")
		if err := l.Sign("proxy", testKey.ForWriter("3453c04dd91561a8", "proxy")); err != nil {
			b.Fatal(err)
		}
		write(b, l)
	})
}
