package policy

import "fmt"

// Pos is where a value was written. The zero value means "a default".
type Pos struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Col  int    `json:"col,omitempty"`
}

// String gives file:line:col, or "default".
func (p Pos) String() string {
	if p.File == "" {
		return "default"
	}
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// Problem is one mistake or finding in a policy.
type Problem struct {
	Pos  Pos    `json:"pos"`
	Path string `json:"path"` // "network.rules[2].host"
	What string `json:"what"` // lower case, no full stop
	Hint string `json:"hint,omitempty"`
}

// Error gives "file:line:col: path: what".
func (p Problem) Error() string {
	s := p.Pos.String() + ": "
	if p.Path != "" {
		s += p.Path + ": "
	}
	return s + p.What
}

// Problems is every mistake found in one run, in file order.
type Problems []Problem

// Error gives one mistake a line.
func (ps Problems) Error() string {
	s := ""
	for i, p := range ps {
		if i > 0 {
			s += "\n"
		}
		s += p.Error()
	}
	return s
}
