// Package strictjson reads JSON in the only way in which it can be read, and
// writes it anew. What two parsers could understand differently is refused:
// duplicate names at any depth, invalid UTF-8, lone surrogates, text after the
// value, and, for the names that somebody decides by, spellings that differ
// only in case (encoding/json in Go does not tell those apart, CVE-2026-27896).
package strictjson

import (
	"errors"
	"strconv"
	"strings"
)

// Kind is the kind of a value. The zero value is no value at all.
type Kind uint8

// The kinds.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// Value is one JSON value. Numbers keep their spelling and members their
// order. The zero value is invalid.
type Value struct {
	kind    Kind
	text    string // of a string, decoded; of a number or bool as spelt
	items   []Value
	members []Member
}

// Member is one name of an object and its value.
type Member struct {
	Name  string
	Value Value
}

// Kind is the kind of the value.
func (v Value) Kind() Kind { return v.kind }

// Text is a string's text, or the spelling of a number, bool or null; "" for
// everything else.
func (v Value) Text() string {
	if v.kind == Null {
		return "null"
	}
	return v.text
}

// IsString tells whether v is the string s.
func (v Value) IsString(s string) bool { return v.kind == String && v.text == s }

// Int is the value of a whole number that is written without fraction and
// exponent.
func (v Value) Int() (int64, bool) {
	if v.kind != Number {
		return 0, false
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	return n, err == nil
}

// Items are the elements of an array.
func (v Value) Items() []Value { return v.items }

// Members are the members of an object, in order.
func (v Value) Members() []Member { return v.members }

// Get gives the member with exactly this name; without one, an invalid value.
func (v Value) Get(name string) Value {
	for i := range v.members {
		if v.members[i].Name == name {
			return v.members[i].Value
		}
	}
	return Value{}
}

// Exact refuses an object with a member whose name is one of names in another
// letter case. The error names it.
func (v Value) Exact(names ...string) error {
	for i := range v.members {
		for _, want := range names {
			if got := v.members[i].Name; got != want && strings.EqualFold(got, want) {
				return errors.New("name " + strconv.Quote(got) + " is not spelt " + strconv.Quote(want))
			}
		}
	}
	return nil
}

// Lookup gives the value at a JSON pointer (RFC 6901), or an invalid one when
// nothing is there. It refuses as Exact does, at each step.
func (v Value) Lookup(pointer string) (Value, error) {
	if pointer == "" {
		return v, nil
	}
	rest, ok := strings.CutPrefix(pointer, "/")
	if !ok {
		return Value{}, errors.New("JSON pointer does not start with a slash")
	}
	for _, step := range strings.Split(rest, "/") {
		step = unescapePointer.Replace(step)
		switch v.kind {
		case Object:
			if err := v.Exact(step); err != nil {
				return Value{}, err
			}
			v = v.Get(step)
		case Array:
			n, err := strconv.ParseUint(step, 10, 31)
			if err != nil || strconv.FormatUint(n, 10) != step || int(n) >= len(v.items) {
				return Value{}, nil
			}
			v = v.items[n]
		default:
			return Value{}, nil
		}
	}
	return v, nil
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// With gives a copy of the object in which the member has another value; a new
// member comes last.
func (v Value) With(name string, value Value) Value {
	members := make([]Member, 0, len(v.members)+1)
	found := false
	for _, m := range v.members {
		if m.Name == name {
			m.Value, found = value, true
		}
		members = append(members, m)
	}
	if !found {
		members = append(members, Member{name, value})
	}
	return Value{kind: Object, members: members}
}

// Without gives a copy of the object without the member.
func (v Value) Without(name string) Value {
	members := make([]Member, 0, len(v.members))
	for _, m := range v.members {
		if m.Name != name {
			members = append(members, m)
		}
	}
	return Value{kind: Object, members: members}
}

// Replace gives a copy in which the value at a JSON pointer, which must exist
// or be a new member of an object that exists, is another one.
func (v Value) Replace(pointer string, value Value) (Value, error) {
	if pointer == "" {
		return value, nil
	}
	step, rest, more := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	if more {
		rest = "/" + rest
	}
	step = unescapePointer.Replace(step)
	switch v.kind {
	case Object:
		next := v.Get(step)
		if next.kind == Invalid && more {
			return Value{}, errors.New("nothing at " + strconv.Quote(step))
		}
		out, err := next.Replace(rest, value)
		return v.With(step, out), err
	case Array:
		n, err := strconv.ParseUint(step, 10, 31)
		if err != nil || int(n) >= len(v.items) {
			return Value{}, errors.New("no element " + strconv.Quote(step))
		}
		out, err := v.items[n].Replace(rest, value)
		items := append([]Value{}, v.items...)
		items[n] = out
		return Value{kind: Array, items: items}, err
	}
	return Value{}, errors.New("nothing below a value that is neither object nor array")
}

// TextOf makes a string.
func TextOf(s string) Value { return Value{kind: String, text: s} }

// IntOf makes a number.
func IntOf(n int64) Value { return Value{kind: Number, text: strconv.FormatInt(n, 10)} }

// BoolOf makes true or false.
func BoolOf(b bool) Value { return Value{kind: Bool, text: strconv.FormatBool(b)} }

// ListOf makes an array.
func ListOf(items ...Value) Value { return Value{kind: Array, items: items} }

// ObjectOf makes an object. The names must differ.
func ObjectOf(members ...Member) Value { return Value{kind: Object, members: members} }
