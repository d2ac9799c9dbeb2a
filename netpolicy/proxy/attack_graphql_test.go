package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestCostlyDocuments: documents within their bounds that make whoever collects
// root fields do far more work than they are long.
func TestCostlyDocuments(t *testing.T) {
	var names, operations, nested strings.Builder
	for i := range 990 {
		fmt.Fprintf(&names, "f%d ", i)
	}
	last := strings.Repeat("f989 ", 18_000)
	for i := range 2400 {
		fmt.Fprintf(&operations, "query q%d{...F}", i)
	}
	for i := range 900 {
		fmt.Fprintf(&nested, "fragment F%d on Query{...F%d ...F%d a}", i, (i+1)%900, (i+7)%900)
	}
	for name, source := range map[string]string{
		"control":                 "{" + names.String() + "}",
		"the last field again":    "{" + names.String() + last + "}",
		"one fragment everywhere": operations.String() + "fragment F on Query{" + names.String() + "}",
		"fragments in a circle":   "{...F0}" + nested.String(),
		"nested selections":       strings.Repeat("{a", 900) + strings.Repeat("}", 900),
	} {
		began := time.Now()
		for range 3 {
			_, _, err := parseDocument(source, map[bool]string{true: "q0"}[strings.HasPrefix(source, "query")])
			if refused := name == "one fragment everywhere"; refused != (err != nil) {
				t.Fatalf("%s: got %v, want refused %v", name, err, refused)
			}
		}
		took := time.Since(began)
		t.Logf("%s: %d bytes, %v", name, len(source), took/3)
		if took > 20*time.Second {
			t.Errorf("%s: took %v for 3 documents of %d bytes", name, took, len(source))
		}
	}
}
