package readers

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Form writes a value as encoding/json gives it (with UseNumber) so that two
// values are the same when their forms are: numbers as the bits of the nearest
// float64, which is all that Node knows of them, text as the bytes of its UTF-8,
// members in the order of their names. The programs do the same.
func Form(v any) string {
	switch v := v.(type) {
	case nil:
		return `"null"`
	case bool:
		return strconv.Quote(strconv.FormatBool(v))
	case json.Number:
		f, _ := strconv.ParseFloat(v.String(), 64) // too large: infinite, as for the others
		if f == 0 {
			f = 0 // -0 and 0 are one
		}
		return fmt.Sprintf(`"n%016x"`, math.Float64bits(f))
	case string:
		return quoted(v)
	case []any:
		items := []string{`"list"`}
		for _, item := range v {
			items = append(items, Form(item))
		}
		return "[" + strings.Join(items, ",") + "]"
	case map[string]any:
		var members []string
		for name, value := range v {
			members = append(members, "["+quoted(name)+","+Form(value)+"]")
		}
		slices.Sort(members)
		return "[" + strings.Join(append([]string{`"object"`}, members...), ",") + "]"
	}
	return fmt.Sprintf(`"unknown %T"`, v)
}

func quoted(s string) string { return `"s` + hex.EncodeToString([]byte(s)) + `"` }
