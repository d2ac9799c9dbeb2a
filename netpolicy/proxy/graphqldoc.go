package proxy

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/lexer"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

const (
	// maxGraphQLTokens bounds one document. Generated clients stay below 5,000.
	maxGraphQLTokens = 20_000
	// maxRootFields bounds the root fields of one operation, and maxRootVisits how
	// often one is met in a document: fragments repeat theirs for each operation.
	maxRootFields = 1000
	maxRootVisits = 50_000
)

var errDocument = errors.New("GraphQL: the query cannot be parsed")

// parseDocument gives the operations of a document and the text that goes out:
// written anew token by token, and that text is what was parsed. Two readers
// cannot differ about comments, line ends or string blocks that are not there.
func parseDocument(source, name string) (text string, operations []netpolicy.Operation, err error) {
	if text, err = rewriteDocument(source); err != nil {
		return "", nil, err
	}
	doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: text}, maxGraphQLTokens+1)
	if err != nil || doc == nil || len(doc.Operations) == 0 {
		return "", nil, errDocument
	}
	fragments, err := fragmentsOf(doc)
	if err != nil {
		return "", nil, err
	}
	if err := checkNames(doc.Operations, name); err != nil {
		return "", nil, err
	}
	visits := 0
	for _, o := range doc.Operations {
		w := rootFields{fragments: fragments, seen: map[string]bool{}, found: map[string]bool{}, visits: &visits}
		if err := w.collect(o.SelectionSet); err != nil {
			return "", nil, err
		}
		operations = append(operations, netpolicy.Operation{Kind: string(o.Operation), Name: o.Name, Fields: w.fields})
	}
	return text, operations, nil
}

// punctuators are the tokens without a value.
var punctuators = map[lexer.Type]string{
	lexer.Bang: "!", lexer.Dollar: "$", lexer.Amp: "&", lexer.ParenL: "(", lexer.ParenR: ")", lexer.Spread: "...",
	lexer.Colon: ":", lexer.Equals: "=", lexer.At: "@", lexer.BracketL: "[", lexer.BracketR: "]",
	lexer.BraceL: "{", lexer.BraceR: "}", lexer.Pipe: "|",
}

func rewriteDocument(source string) (string, error) {
	if !utf8.ValidString(source) {
		return "", errDocument
	}
	in := lexer.New(&ast.Source{Input: source})
	var out strings.Builder
	for range maxGraphQLTokens {
		t, err := in.ReadToken()
		if err != nil {
			return "", errDocument
		}
		switch t.Kind {
		case lexer.EOF:
			return out.String(), nil
		case lexer.Comment:
			continue
		case lexer.Name, lexer.Int, lexer.Float:
			out.WriteString(t.Value)
		case lexer.String, lexer.BlockString:
			if !utf8.ValidString(t.Value) {
				return "", errDocument
			}
			out.Write(strictjson.TextOf(t.Value).Append(nil))
		default:
			p, ok := punctuators[t.Kind]
			if !ok {
				return "", errDocument
			}
			out.WriteString(p)
		}
		out.WriteByte(' ')
	}
	return "", errors.New("GraphQL: the query is longer than can be judged")
}

// checkNames refuses documents in which it is not sure which operation is meant.
func checkNames(operations ast.OperationList, name string) error {
	seen := map[string]bool{}
	for _, o := range operations {
		if seen[o.Name] || o.Name == "" && len(operations) > 1 {
			return errors.New("GraphQL: several operations, and not each with a name of its own")
		}
		seen[o.Name] = true
	}
	switch {
	case name == "" && len(operations) > 1:
		return errors.New("GraphQL: several operations without operationName")
	case name != "" && !seen[name]:
		return errors.New("GraphQL: operationName names no operation")
	}
	return nil
}

func fragmentsOf(doc *ast.QueryDocument) (map[string]*ast.FragmentDefinition, error) {
	fragments := map[string]*ast.FragmentDefinition{}
	for _, f := range doc.Fragments {
		if fragments[f.Name] != nil {
			return nil, errors.New("GraphQL: two fragments with one name")
		}
		fragments[f.Name] = f
	}
	return fragments, nil
}

// rootFields collects the fields at the root of an operation, whatever spreads
// them there and whatever type they are said to be for. Directives do not
// matter: whether a field is left out is the server's decision.
type rootFields struct {
	fragments map[string]*ast.FragmentDefinition
	seen      map[string]bool // fragments that were entered
	found     map[string]bool // fields
	fields    []string
	visits    *int
}

var errRootFields = errors.New("GraphQL: more root fields than can be judged")

func (w *rootFields) collect(set ast.SelectionSet) error {
	for _, s := range set {
		var err error
		if *w.visits++; *w.visits > maxRootVisits {
			return errRootFields
		}
		switch s := s.(type) {
		case *ast.Field:
			if !w.found[s.Name] {
				w.found[s.Name] = true
				w.fields = append(w.fields, s.Name)
			}
			if len(w.fields) > maxRootFields {
				err = errRootFields
			}
		case *ast.InlineFragment:
			err = w.collect(s.SelectionSet)
		case *ast.FragmentSpread:
			err = w.spread(s.Name)
		default:
			err = errDocument
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *rootFields) spread(name string) error {
	f := w.fragments[name]
	if f == nil {
		return errors.New("GraphQL: a fragment that is not there")
	}
	if w.seen[name] {
		return nil // its fields are collected already, also in a cycle
	}
	w.seen[name] = true
	return w.collect(f.SelectionSet)
}
