package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

//go:embed intro.md
var intro string

// reference gives the reference page.
func reference(docs comments) []byte {
	p := page{docs: docs}
	p.WriteString(intro)
	p.section("", reflect.TypeFor[policy.Policy]())
	for len(p.queue) > 0 {
		next := p.queue[0]
		p.queue = p.queue[1:]
		p.section(next.path, next.typ)
	}
	return p.Bytes()
}

// page is the text so far and the types that still need a section.
type page struct {
	bytes.Buffer
	docs  comments
	queue []entry
	seen  []reflect.Type
}

type entry struct {
	path string
	typ  reflect.Type
}

// section describes the keys of one type.
func (p *page) section(path string, t reflect.Type) {
	if path == "" {
		p.WriteString("\n## Top level\n\n")
	} else {
		fmt.Fprintf(p, "\n## %s\n\n%s\n\n", path, p.docs[t.Name()])
	}
	p.WriteString("| key | value | meaning | in a project's file |\n|---|---|---|---|\n")
	for i := range t.NumField() {
		f := t.Field(i)
		if key(f) == "" {
			continue
		}
		doc, _ := p.docs.field(t, f) // the schema reports a missing comment
		value := p.value(f.Type, f.Tag, strings.TrimPrefix(path+"."+key(f), "."))
		fmt.Fprintf(p, "| `%s` | %s | %s | %s |\n", key(f), cell(value), cell(doc), direction(f.Tag.Get("tighten")))
	}
}

// cell keeps a text within a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// direction says what a project's file may do to the key.
func direction(tighten string) string {
	return map[string]string{
		"subset":   "entries may go, none may come",
		"superset": "entries may come, none may go",
		"lower":    "may be lowered",
		"higher":   "may be raised",
		"limit":    "may be set or lowered",
		"fixed":    "must stay as it is",
		"label":    "has no effect",
		"absent":   "must not be there",
	}[tighten]
}

// value names what a key holds, and queues the type for a section of its own.
func (p *page) value(t reflect.Type, tag reflect.StructTag, path string) string {
	switch t {
	case reflect.TypeFor[policy.Path]():
		return "path"
	case reflect.TypeFor[policy.Size]():
		return "size"
	case reflect.TypeFor[policy.Count]():
		return "count"
	case reflect.TypeFor[policy.Duration]():
		return "duration"
	case reflect.TypeFor[policy.Name]():
		return words(tag)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return p.value(t.Elem(), tag, path)
	case reflect.Slice:
		return "list of " + p.value(t.Elem(), tag, path+"[]")
	case reflect.Map:
		return "map of " + p.value(t.Elem(), tag, path)
	case reflect.Struct:
		if !slices.Contains(p.seen, t) {
			p.seen = append(p.seen, t)
			p.queue = append(p.queue, entry{path, t})
		}
		return "map, see " + strings.ToLower(t.Name())
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "whole number" + numberRange(tag)
	case reflect.Float64:
		return "number"
	}
	return words(tag)
}

func words(tag reflect.StructTag) string {
	if enum := tag.Get("enum"); enum != "" {
		return "`" + strings.ReplaceAll(enum, ",", "`, `") + "`"
	}
	return "text"
}

func numberRange(tag reflect.StructTag) string {
	lo, hi := tag.Get("min"), tag.Get("max")
	if hi == "" {
		return ""
	}
	if lo == "" {
		lo = "0"
	}
	return ", " + lo + " to " + hi
}
