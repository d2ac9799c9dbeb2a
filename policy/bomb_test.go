package policy

import (
	"fmt"
	"strings"
	"testing"
)

// bombs are files near the size limit that are costly to judge.
func bombs() map[string]string {
	fill := func(head string, item func(i int) string) string {
		var b strings.Builder
		b.WriteString(head)
		for i := 0; b.Len() < maxFile-200 && i < maxItems; i++ {
			b.WriteString(item(i))
		}
		return b.String()
	}
	return map[string]string{
		"too many":        "version: 1\nextends: [" + strings.Repeat("a, ", maxItems+1) + "]\n",
		"unknown keys":    fill("version: 1\n", func(i int) string { return fmt.Sprintf("k%06d: 1\n", i) }),
		"unknown in deep": fill("version: 1\nnetwork:\n  rules:\n", func(i int) string { return fmt.Sprintf("    - {nmae: a%d, hots: b}\n", i) }),
		"rules":           fill("version: 1\nnetwork:\n  rules:\n", func(i int) string { return fmt.Sprintf("    - {name: a%d, host: h%d.org}\n", i, i) }),
		"hosts":           fill("version: 1\nnetwork: {rules: [{name: a, hosts: [", func(i int) string { return fmt.Sprintf("h%d.org, ", i) }) + "]}]}\n",
		"paths":           fill("version: 1\nfilesystem: {read: [", func(i int) string { return fmt.Sprintf("/a/%d, ", i) }) + "]}\n",
		"writes":          fill("version: 1\nfilesystem: {write: [", func(i int) string { return fmt.Sprintf("/a/b/c/%d, ", i) }) + "]}\n",
		"removes":         fill("version: 1\nnetwork: {remove: [", func(i int) string { return fmt.Sprintf("dosc%d, ", i) }) + "]}\n",
		"aliases":         fill("version: 1\nname: &a x\nextends: [", func(i int) string { return "*a, " }) + "]\n",
		"long text":       "version: 1\ndescription: " + strings.Repeat("x", maxFile-200) + "\n",
		"long pattern":    "version: 1\nfilesystem: {read: [\"/" + strings.Repeat("*a", maxFile/2-200) + "\"]}\n",
		"long names":      "version: 1\nenv: {allow: [\"A" + strings.Repeat("*A", maxFile/2-200) + "\"]}\n",
	}
}

// F11, F25: a file within the limit costs bounded time. The bound is the test's
// own deadline; what is asserted is that each gives an answer.
func TestLargeFiles(t *testing.T) {
	for name, text := range bombs() {
		t.Run(name, func(t *testing.T) {
			if len(text) > maxFile {
				t.Fatalf("got %d bytes, want at most %d", len(text), maxFile)
			}
			w := newWorld(t)
			p, err := w.load(text)
			if err == nil && p.Digest == "" {
				t.Errorf("got neither a policy nor an error")
			}
			if err == nil {
				if _, err := FromJSON(p.JSON()); err != nil {
					t.Errorf("from JSON: %v", err)
				}
			}
		})
	}
}
