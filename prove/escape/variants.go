package escape

import (
	"fmt"
	"strings"
)

// variantsOf gives the values of $VARIANT for a case: all that are fixed, and
// as many as random from the seed. A case without variants has one, empty.
func variantsOf(c Case, _ int64, _ int) ([]string, error) {
	switch kind, _, _ := strings.Cut(c.Variants, " "); kind {
	case "":
		return []string{""}, nil
	case "lines":
		var out []string
		for line := range strings.Lines(c.Sections["lines"]) {
			if line = strings.TrimRight(line, "\n"); line != "" {
				out = append(out, line)
			}
		}
		return out, nil
	default:
		return nil, fmt.Errorf("variants: %q: no such generator", kind)
	}
}
