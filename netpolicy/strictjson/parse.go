package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds nesting. Real requests stay below 30.
const maxDepth = 256

var (
	errDepth    = errors.New("parse JSON: nested too deeply")
	errTrailing = errors.New("parse JSON: text after the value")
)

// Parse reads exactly one value. An error says what is wrong and never holds
// text of the input.
func Parse(b []byte) (Value, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(b))
	v, err := read(d, 0)
	if err != nil {
		return Value{}, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return Value{}, errTrailing
	}
	return v, nil
}

func read(d *jsontext.Decoder, depth int) (Value, error) {
	if depth > maxDepth {
		return Value{}, errDepth
	}
	t, err := d.ReadToken()
	if err != nil {
		return Value{}, explain(err)
	}
	switch t.Kind() {
	case 'n':
		return Value{kind: Null}, nil
	case 't', 'f':
		return BoolOf(t.Bool()), nil
	case '"':
		return TextOf(t.String()), nil
	case '0':
		return Value{kind: Number, text: t.String()}, nil
	case '[':
		return readArray(d, depth)
	case '{':
		return readObject(d, depth)
	}
	return Value{}, explain(io.ErrUnexpectedEOF)
}

func readArray(d *jsontext.Decoder, depth int) (Value, error) {
	v := Value{kind: Array}
	for d.PeekKind() != ']' {
		item, err := read(d, depth+1)
		if err != nil {
			return Value{}, err
		}
		v.items = append(v.items, item)
	}
	_, err := d.ReadToken()
	return v, explain(err)
}

func readObject(d *jsontext.Decoder, depth int) (Value, error) {
	v := Value{kind: Object}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return Value{}, explain(err)
		}
		m := Member{Name: name.String()}
		if m.Value, err = read(d, depth+1); err != nil {
			return Value{}, err
		}
		v.members = append(v.members, m)
	}
	_, err := d.ReadToken()
	return v, explain(err)
}

// explain leaves out the place: a JSON pointer repeats names of the input.
func explain(err error) error {
	var s *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jsontext.ErrDuplicateName):
		return errors.New("parse JSON: a name is there twice")
	case errors.As(err, &s):
		return fmt.Errorf("parse JSON: malformed at byte %d", s.ByteOffset)
	}
	return errors.New("parse JSON: it ends too early")
}

// Append writes the value to dst, without spaces.
func (v Value) Append(dst []byte) []byte {
	switch v.kind {
	case String:
		return appendString(dst, v.text)
	case Number, Bool:
		return append(dst, v.text...)
	case Array:
		dst = append(dst, '[')
		for i := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.items[i].Append(dst)
		}
		return append(dst, ']')
	case Object:
		dst = append(dst, '{')
		for i := range v.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(dst, v.members[i].Name)
			dst = append(dst, ':')
			dst = v.members[i].Value.Append(dst)
		}
		return append(dst, '}')
	default:
		return append(dst, "null"...)
	}
}

// appendString never fails: Parse and the callers give well-formed UTF-8.
func appendString(dst []byte, s string) []byte {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		return append(dst, `""`...)
	}
	return out
}
