package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// object is one JSON Schema. Its keys are printed in order.
type object map[string]any

// schemaJSON gives the schema of a policy file.
func schemaJSON(docs comments) ([]byte, error) {
	g := generator{docs: docs, defs: object{}}
	root := g.structType(reflect.TypeFor[policy.Policy]())
	if g.err != nil {
		return nil, g.err
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "hermes-wrap policy, version " + strconv.Itoa(policy.Version)
	root["properties"].(object)["version"].(object)["const"] = policy.Version
	root["required"] = []string{"version"}
	root["$defs"] = g.defs
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// generator collects the named types.
type generator struct {
	docs comments
	defs object
	err  error
}

// structType gives the schema of a map with known keys.
func (g *generator) structType(t reflect.Type) object {
	props := object{}
	var required []string
	for i := range t.NumField() {
		f := t.Field(i)
		if key(f) == "" {
			continue
		}
		doc, err := g.docs.field(t, f)
		if err != nil && g.err == nil {
			g.err = err
		}
		s := g.value(f.Type, f.Tag)
		s["description"] = doc
		props[key(f)] = s
		if f.Tag.Get("required") != "" {
			required = append(required, key(f))
		}
	}
	s := object{"type": "object", "additionalProperties": false, "properties": props}
	if required != nil {
		s["required"] = required
	} else if t != reflect.TypeFor[policy.Policy]() {
		s["minProperties"] = 1
	}
	for k, v := range between(t) {
		s[k] = v
	}
	return s
}

// between gives what holds between the keys of a type.
func between(t reflect.Type) object {
	one := func(keys ...string) []object {
		var all []object
		for _, k := range keys {
			all = append(all, object{"required": []string{k}})
		}
		return all
	}
	switch t {
	case reflect.TypeFor[policy.Rule]():
		return object{
			"oneOf": one("host", "hosts", "any"),
			"if":    object{"properties": object{"protocol": object{"const": "tcp"}}, "required": []string{"protocol"}},
			"then": object{
				"required": []string{"ports"},
				"not":      object{"anyOf": one("tls", "access", "allow", "deny")},
			},
		}
	case reflect.TypeFor[policy.Match]():
		return object{"minProperties": 1}
	case reflect.TypeFor[policy.Assertion](), reflect.TypeFor[policy.Probe]():
		return object{"minProperties": 1, "maxProperties": 1}
	}
	return nil
}

// value gives the schema of a value; the constraints in the tag hold for each
// item of a list.
func (g *generator) value(t reflect.Type, tag reflect.StructTag) object {
	switch t {
	case reflect.TypeFor[policy.Publish]():
		return object{"anyOf": []object{text(tag), g.ref(t)}}
	case reflect.TypeFor[policy.Path]():
		return object{"type": "string", "minLength": 1}
	case reflect.TypeFor[policy.Name]():
		return text(tag)
	case reflect.TypeFor[policy.Size]():
		return object{"anyOf": []object{
			bounds(object{"type": "integer"}, tag),
			{"type": "string", "pattern": "^(0|[1-9][0-9]{0,17})[KMGT]?$"},
		}}
	case reflect.TypeFor[policy.Count]():
		return object{"anyOf": []object{
			bounds(object{"type": "integer"}, tag),
			{"type": "string", "pattern": "^(0|[1-9][0-9]{0,17})[kMG]?$"},
		}}
	case reflect.TypeFor[policy.Duration]():
		return object{"type": "string", "pattern": "^(0|[1-9][0-9]{0,8})(ms|s|m|h)$"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.value(t.Elem(), tag)
	case reflect.Struct:
		return g.ref(t)
	case reflect.Slice:
		return least(object{"type": "array", "items": g.value(t.Elem(), tag)}, "minItems", tag)
	case reflect.Map:
		s := object{"type": "object", "additionalProperties": g.value(t.Elem(), tag)}
		if p := policy.Form(tag.Get("key")); p != "" {
			s["propertyNames"] = object{"pattern": p}
		}
		return least(s, "minProperties", tag)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int:
		return bounds(object{"type": "integer"}, tag)
	case reflect.Float64:
		return object{"type": "number", "minimum": 0}
	case reflect.String:
		return text(tag)
	}
	g.err = fmt.Errorf("type %v has no schema", t)
	return object{}
}

func (g *generator) ref(t reflect.Type) object {
	name := strings.ToLower(t.Name())
	if _, done := g.defs[name]; !done {
		g.defs[name] = object{} // a type may hold itself
		s := g.structType(t)
		s["description"] = g.docs[t.Name()]
		g.defs[name] = s
	}
	return object{"$ref": "#/$defs/" + name}
}

func least(s object, word string, tag reflect.StructTag) object {
	if tag.Get("nonempty") != "" {
		s[word] = 1
	}
	return s
}

func text(tag reflect.StructTag) object {
	s := object{"type": "string"}
	if enum := tag.Get("enum"); enum != "" {
		s["enum"] = strings.Split(enum, ",")
	}
	if p := policy.Form(tag.Get("is")); p != "" {
		s["pattern"] = p
	}
	return s
}

func bounds(s object, tag reflect.StructTag) object {
	s["minimum"] = 0
	for word, key := range map[string]string{"minimum": "min", "maximum": "max"} {
		if n, err := strconv.Atoi(tag.Get(key)); err == nil {
			s[word] = n
		}
	}
	return s
}
