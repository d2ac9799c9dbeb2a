package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// TestMethodInTheQuery: some servers take the method from the query (corpus D34).
func TestMethodInTheQuery(t *testing.T) {
	w := newWorld(t, testNetwork())
	w.serve("api.example.org", 443, &echo{})
	c := w.client("api.example.org", 443, false)
	for target, want := range map[string]int{
		"/public/a":                         200,
		"/public/a?_method=PUT":             200,
		"/public/a?_method=DELETE":          403,
		"/public/a?_method=delete":          403,
		"/public/a?_method[]=DELETE":        403,
		"/public/a?.method=DELETE":          403, // PHP takes it for _method
		"/public/a?%2emethod=DELETE":        403,
		"/public/a?+_method=DELETE":         403,
		"/public/a?[method=DELETE":          403,
		"/public/a?_METHOD=DELETE":          403,
		"/public/a?%5Fmethod=DELETE":        403,
		"/public/a?_method=PUT&_method=X":   403,
		"/public/a?_method=TRACE":           403,
		"/public/a?_method=":                400,
		"/public/a?x=_method&method=DELETE": 200,
	} {
		if got, body := do(t, c, newRequest(t, "POST", "https://api.example.org"+target, nil)); got != want {
			t.Errorf("%s: got %d %s, want %d", target, got, body, want)
		}
	}
	w.wantNoFault()
}

// TestBodyThatIsAllEscapes: the beginning of the placeholder, and then line ends
// without end, neither passes nor fills the memory.
func TestBodyThatIsAllEscapes(t *testing.T) {
	w, h := secretWorld(t, policy.Credential{})
	c := w.client("other.example.org", 443, false)
	send := func(text string) (int, string) {
		body := io.MultiReader(strings.NewReader(placeholder[:20]), strings.NewReader(text))
		return do(t, c, newRequest(t, http.MethodPost, "https://other.example.org/", io.NopCloser(body)))
	}
	if got, body := send(strings.Repeat("text\n", 200<<10)); got != 200 {
		t.Errorf("control: got %d %s, want 200", got, body)
	}
	if got, body := send(strings.Repeat("\n", 1<<20)); got != 403 {
		t.Errorf("line ends: got %d %s, want 403", got, body)
	}
	for _, r := range h.all()[1:] {
		if r.whole {
			t.Error("the server got a whole body, want it cut off")
		}
	}
	w.wantClean()
}
