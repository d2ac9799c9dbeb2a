// Command bill writes what the binary is made of.
//
//	go run ./prove/supply/bill licences            packaging/THIRD_PARTY
//	go run ./prove/supply/bill sbom BIN TOOL       CycloneDX; TOOL is cyclonedx-gomod
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hermes-wrap/hermes-wrap/prove/supply"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bill: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "licences":
		text, err := supply.ThirdParty(ctx, root)
		if err == nil {
			_, err = os.Stdout.WriteString(text)
		}
		return err
	case len(args) == 3 && args[0] == "sbom":
		document, err := supply.SBOM(ctx, root, args[1], args[2])
		if err == nil {
			_, err = os.Stdout.Write(document)
		}
		return err
	}
	return errors.New(`it takes "licences", or "sbom" with a binary and the tool cyclonedx-gomod`)
}
