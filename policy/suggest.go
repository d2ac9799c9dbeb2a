package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// keyHint finds what an unknown key was meant to be: a key of the same map
// that is spelt alike, or one of the same name in another section.
func keyHint(key string, fields []field) string {
	var keys []string
	for _, f := range fields {
		keys = append(keys, f.key)
	}
	if near := nearest(key, keys); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if homes := sectionsWith(key); len(homes) > 0 {
		return fmt.Sprintf("%q belongs under %s", key, strings.Join(homes, " or "))
	}
	slices.Sort(keys)
	return "known here: " + strings.Join(keys, ", ")
}

// sectionsWith lists the sections that have the key.
func sectionsWith(key string) []string {
	var homes []string
	for _, f := range fieldsOf(reflect.TypeFor[Policy]()) {
		if f.typ.Kind() != reflect.Struct {
			continue
		}
		for _, g := range fieldsOf(f.typ) {
			if g.key == key {
				homes = append(homes, f.key)
			}
		}
	}
	return homes
}

// nearest gives the candidate that is spelt most like s, or "" when none is
// near enough to be a slip.
func nearest(s string, candidates []string) string {
	best, found := 1+len(s)/3, ""
	flat := strings.NewReplacer("-", "_").Replace(strings.ToLower(s))
	if len(s) > 64 {
		return ""
	}
	for _, c := range candidates {
		if len(c) > len(s)+best || len(s) > len(c)+best {
			continue
		}
		if d := distance(flat, strings.NewReplacer("-", "_").Replace(c)); d < best || d == best && found == "" {
			best, found = d, c
		}
	}
	return found
}

// distance is the number of letters to change, insert, drop or swap with a
// neighbour (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
