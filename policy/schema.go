package policy

import (
	_ "embed"
	"slices"
)

//go:generate go run ./internal/gen

//go:embed schema.json
var schema []byte

// Schema gives the JSON Schema (2020-12) of a policy file, for editors. It
// states what the types state; Load checks more.
func Schema() []byte { return slices.Clone(schema) }
