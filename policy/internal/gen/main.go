// Command gen writes the JSON Schema and the reference page of a policy file
// from the Go types and their comments. It runs in the policy directory, by
// "go generate ./policy".
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run writes both files of the policy package in dir.
func run(dir string) error {
	files, err := generate(dir)
	if err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate gives the text of each file, by its path from dir.
func generate(dir string) (map[string][]byte, error) {
	docs, err := readComments(dir)
	if err != nil {
		return nil, err
	}
	schema, err := schemaJSON(docs)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"schema.json":                 schema,
		"../docs/policy-reference.md": reference(docs),
	}, nil
}
