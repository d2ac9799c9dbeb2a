// Command escapes runs the table of escapes by itself, on a machine that needs
// no more than the binary under test, python3 and the directory of the table.
package main

import (
	"os"

	"github.com/hermes-wrap/hermes-wrap/prove/escape"
)

func main() { os.Exit(escape.Main(os.Args[1:])) }
