// Command probe is run inside the sandbox, and outside as a control, and prints
// what it can do there. It is static and needs nothing of the system.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
)

func main() {
	if len(os.Args) < 2 {
		fail("usage: probe walk|search|posture|argv|signals|create …")
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	var err error
	switch args := os.Args[2:]; os.Args[1] {
	case "walk": // walk [-read] ROOT…
		err = walk(out, args)
	case "search": // search HEXTOKEN UNIXTIME ROOT…
		err = search(out, args)
	case "posture":
		err = posture(out)
	case "argv":
		for _, a := range os.Args {
			fmt.Fprintln(out, strconv.QuoteToASCII(a))
		}
	case "signals":
		signals()
	case "create": // create PATH…
		create(out, args)
	default:
		err = fmt.Errorf("unknown probe %q", os.Args[1])
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "probe:", text)
	os.Exit(99)
}
