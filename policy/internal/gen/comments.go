package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// comments holds the doc comment of each type ("Rule") and field ("Rule.Host").
type comments map[string]string

// readComments parses the Go files of a directory.
func readComments(dir string) (comments, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	docs := comments{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		docs.add(file)
	}
	return docs, nil
}

func (c comments) add(file *ast.File) {
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		for _, spec := range gen.Specs {
			t := spec.(*ast.TypeSpec)
			c[t.Name.Name] = oneLine(gen.Doc)
			if s, ok := t.Type.(*ast.StructType); ok {
				c.addFields(t.Name.Name, s)
			}
		}
	}
}

func (c comments) addFields(typ string, s *ast.StructType) {
	for _, f := range s.Fields.List {
		doc := oneLine(f.Doc)
		if doc == "" {
			doc = oneLine(f.Comment)
		}
		for _, name := range f.Names {
			c[typ+"."+name.Name] = doc
		}
	}
}

func oneLine(g *ast.CommentGroup) string {
	return strings.Join(strings.Fields(g.Text()), " ")
}

// field gives the comment of a field as a user reads it: with the key in
// place of the Go name.
func (c comments) field(t reflect.Type, f reflect.StructField) (string, error) {
	doc := c[t.Name()+"."+f.Name]
	if doc == "" {
		return "", fmt.Errorf("%s.%s has no comment", t.Name(), f.Name)
	}
	if rest, ok := strings.CutPrefix(doc, f.Name+" "); ok {
		doc = "`" + key(f) + "` " + rest
	}
	return doc, nil
}

// key is the name of a field in a file, or "" for one that is not in files.
func key(f reflect.StructField) string {
	if k := f.Tag.Get("yaml"); k != "-" {
		return k
	}
	return ""
}
