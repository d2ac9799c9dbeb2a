package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// maxDepth is how deep lists and maps may nest in a policy file.
const maxDepth = 32

// kind is what a node is.
type kind int

const (
	scalarNode kind = iota
	listNode
	mapNode
)

// String gives the word for messages.
func (k kind) String() string {
	return [...]string{"single value", "list", "map"}[k]
}

// node is one value of a policy file. A map holds key, value, key, value.
type node struct {
	kind  kind
	value string
	// plain is true for a scalar without quotes, whose type is guessed.
	plain bool
	// tag is the guessed type of a plain scalar: str, int, float, bool, null.
	tag  string
	pos  Pos
	kids []*node
}

// parse reads exactly one YAML document of the subset that policies are
// written in: no anchors, no tags, no directives.
func parse(file string, data []byte) (*node, Problems) {
	if ps := checkText(file, data); len(ps) > 0 {
		return nil, ps
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		return nil, Problems{{Pos: Pos{file, 1, 1}, What: "start the YAML reader: " + err.Error(), Hint: "BUG: please report it"}}
	}
	var doc yaml.Node
	if err := loader.Load(&doc); errors.Is(err, io.EOF) {
		return nil, Problems{emptyFile(file)}
	} else if err != nil {
		return nil, Problems{syntaxProblem(file, data, err)}
	}
	c := converter{file: file}
	root := c.convert(&doc)
	c.end(loader, data)
	return root, c.problems
}

// emptyFile refuses a policy that says nothing, whichever way it says it: an
// empty policy must never be read as "no restrictions".
func emptyFile(file string) Problem {
	return Problem{
		Pos: Pos{file, 1, 1}, What: "the policy is empty",
		Hint: `a policy starts with "version: 1"; that alone means the strict base`,
	}
}

// converter turns yaml nodes into ours and refuses what policies may not use.
type converter struct {
	file     string
	problems Problems
}

func (c *converter) add(p Pos, what, hint string) {
	c.problems = append(c.problems, Problem{Pos: p, What: what, Hint: hint})
}

// convert walks one node. What is refused is reported and left out as nil, so
// that the walk can go on.
func (c *converter) convert(n *yaml.Node) *node {
	pos := Pos{c.file, n.Line, n.Column}
	if n.Kind == yaml.DocumentNode {
		if len(n.Content) != 1 || n.Content[0].Tag == "!!null" {
			c.problems = append(c.problems, emptyFile(c.file))
			return nil
		}
		return c.convert(n.Content[0])
	}
	if c.refuse(n, pos) {
		return nil
	}
	out := &node{value: n.Value, tag: strings.TrimPrefix(n.Tag, "!!"), pos: pos}
	switch n.Kind {
	case yaml.SequenceNode:
		out.kind = listNode
	case yaml.MappingNode:
		out.kind = mapNode
	default:
		out.plain = n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	}
	for _, k := range n.Content {
		out.kids = append(out.kids, c.convert(k))
	}
	return out
}

// refuse reports anchors, aliases, merge keys and tags: each lets a reader and
// the decoder see two different policies.
func (c *converter) refuse(n *yaml.Node, pos Pos) (lost bool) {
	if n.Anchor != "" {
		c.add(pos, fmt.Sprintf("anchor %q is not allowed", "&"+n.Anchor), "write the value out in each place")
	}
	switch {
	case n.Kind == yaml.AliasNode:
		c.add(pos, fmt.Sprintf("alias %q is not allowed", "*"+n.Value), starHint)
		return true
	case n.Tag == "!!merge":
		c.add(pos, "merge keys are not allowed", `use "extends" to build on another policy`)
	case n.Style&yaml.TaggedStyle != 0 || n.Tag == "!":
		c.add(pos, fmt.Sprintf("tag %q is not allowed", n.Tag), "quote the value to make it a string")
		return true
	}
	return false
}

// end refuses whatever follows the first document.
func (c *converter) end(loader *yaml.Loader, data []byte) {
	var next yaml.Node
	err := loader.Load(&next)
	switch {
	case errors.Is(err, io.EOF):
	case err != nil:
		c.problems = append(c.problems, syntaxProblem(c.file, data, err))
	default:
		c.add(Pos{c.file, next.Line, next.Column}, "a second document is not allowed",
			`one file is one policy; remove the "---" and what follows`)
	}
}

const starHint = `quote a value that starts with "*": "*.example.org"`

// syntaxProblem turns a yaml error into one of ours. The plural type is tried
// first: errors.As on the singular would pick one of several.
func syntaxProblem(file string, data []byte, err error) Problem {
	var one *yaml.LoadError
	var many *yaml.LoadErrors
	if errors.As(err, &many) && len(many.Errors) > 0 {
		one = many.Errors[0]
	} else if !errors.As(err, &one) {
		return Problem{Pos: Pos{file, 1, 1}, What: err.Error(), Hint: syntaxHint(err.Error(), "")}
	}
	mark, what := one.Mark, one.Message
	if one.ContextMsg != "" {
		what = one.ContextMsg + ": " + what
		// An unclosed bracket or quote is found at the end of the file; where
		// it was opened is what helps.
		open := strings.Contains(one.ContextMsg, "flow") || strings.Contains(one.ContextMsg, "quoted")
		if open && one.ContextMark.Line > 0 {
			mark = one.ContextMark
		}
	}
	p := Problem{Pos: Pos{file, max(mark.Line, 1), max(mark.Column, 1)}, What: what}
	p.Hint = syntaxHint(one.Message, lineOf(data, p.Pos.Line))
	return p
}

// syntaxHint knows the mistakes people make most.
func syntaxHint(message, line string) string {
	switch {
	case strings.Contains(message, "anchor") || strings.Contains(message, "alphabetic"):
		return starHint
	case strings.Contains(message, "max depth"):
		return fmt.Sprintf("lists and maps nest at most %d deep", maxDepth)
	case strings.Contains(message, "end of stream"):
		return "close the quote or bracket that was opened here"
	case strings.Contains(message, "mapping values"):
		return `quote a value that contains ": ", and check the indentation`
	case strings.Contains(message, "expected ','"):
		return "separate entries with commas, and close the bracket that was opened here"
	case strings.ContainsAny(line, "@`%"):
		return "quote a value that starts with @, ` or %"
	}
	return "check the indentation: entries of one list or map begin in one column"
}

func lineOf(data []byte, n int) string {
	lines := bytes.Split(data, []byte("\n"))
	if n < 1 || n > len(lines) {
		return ""
	}
	return string(lines[n-1])
}
