package supply

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// thirdPartyHead begins packaging/THIRD_PARTY.
const thirdPartyHead = `hermes-wrap is under the Apache License, version 2.0 (LICENSE). Its binary holds
what is listed here, whose licences want their texts to go along; they follow.

glibc and libseccomp are linked statically. Under section 6 of the LGPL whoever has
the binary may link it again with another version of them: the whole source is public
under LICENSE, and "make build" links it. What is under the MPL is used as it is
published: its source is the Go module of that name and version.

This file is written by "go run ./prove/supply/bill licences > packaging/THIRD_PARTY".

`

// ThirdParty gives packaging/THIRD_PARTY.
func ThirdParty(ctx context.Context, root string) (string, error) {
	modules, err := Modules(ctx, root)
	if err != nil {
		return "", err
	}
	if why := Refused(modules); len(why) > 0 {
		return "", fmt.Errorf("licences: %s", strings.Join(why, "; "))
	}
	libraries, err := CLibraries(ctx, root)
	if err != nil {
		return "", err
	}
	for i := range libraries {
		libraries[i].Version = "" // that of the machine which builds: in the SBOM
	}
	modules[0].Version = ""
	return thirdParty(append(modules, libraries...)), nil
}

// thirdParty writes the table, and each text once.
func thirdParty(all []Component) string {
	var b strings.Builder
	b.WriteString(thirdPartyHead)
	users := map[[sha256.Size]byte][]string{}
	content := map[[sha256.Size]byte]string{}
	var order [][sha256.Size]byte
	for _, c := range all {
		name := strings.TrimSpace(c.Name + " " + c.Version)
		line := fmt.Sprintf("%-80s %s", name, c.licence())
		if c.Note != "" {
			line += " (" + c.Note + ")"
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, file := range slices.Sorted(maps.Keys(c.Files)) {
			text := strings.TrimSpace(strings.ReplaceAll(c.Files[file], "\r\n", "\n"))
			key := sha256.Sum256([]byte(strings.Join(strings.Fields(text), " ")))
			if _, ok := content[key]; !ok {
				content[key] = text
				order = append(order, key)
			}
			users[key] = append(users[key], c.Name+" ("+file+")")
		}
	}
	for _, key := range order {
		b.WriteString("\n" + strings.Repeat("=", 80) + "\n" + strings.Join(users[key], "\n") + "\n" + strings.Repeat("-", 80) + "\n\n" + content[key] + "\n")
	}
	return b.String()
}
