package policy

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Numbers are decimal and nothing else: 0443, 0x1f, 1_000 and 1e3 mean
// different things to different YAML readers.
var (
	intForm      = lazy(`^-?(0|[1-9][0-9]{0,17})$`)
	floatForm    = lazy(`^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?$`)
	sizeForm     = lazy(`^(0|[1-9][0-9]{0,17})([KMGT]?)$`)
	countForm    = lazy(`^(0|[1-9][0-9]{0,17})([kMG]?)$`)
	durationForm = lazy(`^(0|[1-9][0-9]{0,8})(ms|s|m|h)$`)
	oldBool      = lazy(`^(?i:y|yes|n|no|on|off|true|false)$`)
	oldNumber    = lazy(`^[-+]?(\.[0-9]|[0-9])[0-9a-fA-FxobeE_.+-]*$`)
)

// lazy compiles a pattern when it is first needed.
func lazy(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// ambiguous tells what is wrong with an unquoted word where a string is
// wanted: some YAML readers take it for something else.
func ambiguous(n *node) (what, hint string) {
	if n.kind != scalarNode || !n.plain {
		return "", ""
	}
	quote := "quote it: " + strconv.Quote(n.value)
	if n.tag != "str" && n.tag != "" {
		return fmt.Sprintf("want text, got a %s", word(n.tag)), quote
	}
	if oldBool().MatchString(n.value) {
		return "want text, got a word that some readers take for true or false", quote
	}
	return "", ""
}

func word(tag string) string {
	switch tag {
	case "int", "float":
		return "number"
	case "bool":
		return "true or false"
	case "timestamp":
		return "date"
	}
	return tag
}

// decodeScalar reads one value into a basic type or into one of ours.
func (l *layer) decodeScalar(n *node, v reflect.Value, path string, tag reflect.StructTag) {
	if n.kind != scalarNode {
		l.add(n.pos, path, fmt.Sprintf("want a %s, got a %v", wanted(v), n.kind), "write one value, without brackets or dashes")
		return
	}
	what, hint := setScalar(n, v, tag)
	if what == "" {
		what, hint = constrain(n, v, tag)
	}
	if what != "" {
		l.add(n.pos, path, what, hint)
	}
}

func wanted(v reflect.Value) string {
	switch v.Interface().(type) {
	case Path:
		return "path"
	case Size:
		return "size"
	case Duration:
		return "duration"
	case Count:
		return "number"
	}
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Float64:
		return "number"
	}
	return "single value"
}

func setScalar(n *node, v reflect.Value, tag reflect.StructTag) (what, hint string) {
	switch v.Interface().(type) {
	case Path:
		v.Set(reflect.ValueOf(Path{Text: n.value, Pos: n.pos}))
		if n.value == "" {
			return "the path is empty", "write an absolute path"
		}
		return textValue(n)
	case Name:
		v.Set(reflect.ValueOf(Name{Text: n.value, Pos: n.pos}))
		return textValue(n)
	case Size:
		return setSize(n, v)
	case Duration:
		return setDuration(n, v)
	case Count:
		return setCount(n, v)
	}
	switch v.Kind() {
	case reflect.Bool:
		return setBool(n, v)
	case reflect.Int:
		return setInt(n, v)
	case reflect.Float64:
		return setFloat(n, v)
	default:
		v.SetString(n.value)
		return textValue(n)
	}
}

func textValue(n *node) (what, hint string) {
	if what, hint = ambiguous(n); what != "" {
		return what, hint
	}
	for _, r := range n.value {
		if r == 0 || r == '\r' || r == '\v' || r == 0x7f || r == 0x1b {
			return fmt.Sprintf("contains the control character %U", r), "remove it"
		}
	}
	return "", ""
}

func setBool(n *node, v reflect.Value) (what, hint string) {
	if !n.plain || n.value != "true" && n.value != "false" {
		return fmt.Sprintf("want true or false, got %q", n.value), "write true or false, without quotes"
	}
	v.SetBool(n.value == "true")
	return "", ""
}

func setInt(n *node, v reflect.Value) (what, hint string) {
	if !n.plain || !intForm().MatchString(n.value) {
		return fmt.Sprintf("want a whole number, got %q", n.value), numberHint(n)
	}
	i, err := strconv.ParseInt(n.value, 10, 32)
	if err != nil {
		return fmt.Sprintf("%s is out of range", n.value), "write a smaller number"
	}
	if i < 0 {
		return fmt.Sprintf("%s is negative", n.value), "write a number from 0 on"
	}
	v.SetInt(i)
	return "", ""
}

func numberHint(n *node) string {
	switch {
	case !n.plain && intForm().MatchString(n.value):
		return "write " + n.value + " without quotes"
	case oldNumber().MatchString(n.value):
		return "numbers are decimal, without leading zeros, underscores or exponents"
	}
	return "write digits alone: 100"
}

func setFloat(n *node, v reflect.Value) (what, hint string) {
	if !n.plain || !floatForm().MatchString(n.value) {
		return fmt.Sprintf("want a number, got %q", n.value), numberHint(n)
	}
	f, err := strconv.ParseFloat(n.value, 64)
	if err != nil {
		return fmt.Sprintf("%s is out of range", n.value), "write a smaller number"
	}
	v.SetFloat(f)
	return "", ""
}

func setSize(n *node, v reflect.Value) (what, hint string) {
	m := sizeForm().FindStringSubmatch(n.value)
	if m == nil {
		return fmt.Sprintf("want a size, got %q", n.value), "write bytes or a number with K, M, G or T: 512M"
	}
	i, err := strconv.ParseInt(m[1], 10, 64)
	unit := int64(1) << (10 * strings.Index("_KMGT", m[2]))
	if err != nil || i > math.MaxInt64/unit {
		return fmt.Sprintf("%s is out of range", n.value), "write a smaller number"
	}
	v.SetInt(i * unit)
	return "", ""
}

func setCount(n *node, v reflect.Value) (what, hint string) {
	m := countForm().FindStringSubmatch(n.value)
	if m == nil {
		return fmt.Sprintf("want a number, got %q", n.value), "write a whole number, or one with k, M or G: 2M"
	}
	i, err := strconv.ParseInt(m[1], 10, 64)
	unit := int64(math.Pow10(3 * strings.Index("_kMG", m[2])))
	if err != nil || i > math.MaxInt64/unit {
		return fmt.Sprintf("%s is out of range", n.value), "write a smaller number"
	}
	v.SetInt(i * unit)
	return "", ""
}

func setDuration(n *node, v reflect.Value) (what, hint string) {
	const example = "write a number with ms, s, m or h: 30s"
	if !durationForm().MatchString(n.value) {
		return fmt.Sprintf("want a duration, got %q", n.value), example
	}
	d, err := time.ParseDuration(n.value)
	if err != nil {
		return fmt.Sprintf("%s is out of range", n.value), example
	}
	v.SetInt(int64(d))
	return "", ""
}

// constrain checks the enum, min, max and is tags.
func constrain(n *node, v reflect.Value, tag reflect.StructTag) (what, hint string) {
	if enum := tag.Get("enum"); enum != "" {
		values := strings.Split(enum, ",")
		if !slices.Contains(values, n.value) {
			hint = "one of " + strings.Join(values, ", ")
			if near := nearest(n.value, values); near != "" {
				hint = fmt.Sprintf("did you mean %q? It is %s", near, hint)
			}
			return fmt.Sprintf("unknown value %q", n.value), hint
		}
	}
	if v.CanInt() {
		if lo := tag.Get("min"); lo != "" && v.Int() < atoi(lo) {
			return fmt.Sprintf("%s is below the least value, %s", n.value, lo), "write " + lo + " or more"
		}
		if hi := tag.Get("max"); hi != "" && v.Int() > atoi(hi) {
			return fmt.Sprintf("%s is above the greatest value, %s", n.value, hi), "write " + hi + " or less"
		}
	}
	return checkValue(tag.Get("is"), n.value)
}

// atoi reads a bound from a struct tag; a test holds that all of them parse.
func atoi(s string) int64 {
	i, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MinInt64
	}
	return i
}
