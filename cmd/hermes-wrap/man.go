//go:build man

package main

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra/doc"
)

// With the build tag "man" the program writes its manual pages, one a command,
// into the directory that its only argument names. The release binary has none of
// this. SOURCE_DATE_EPOCH gives the date, so that packages can be reproduced.
func init() {
	if len(os.Args) != 2 {
		return
	}
	if err := writeManual(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func writeManual(dir string) error {
	epoch, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
	}
	date := time.Unix(epoch, 0).UTC()
	root := newCommandLine().root()
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "hermes-wrap", Manual: "hermes-wrap", Date: &date}, dir)
}
