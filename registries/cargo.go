package registries

import (
	"fmt"
	"path/filepath"
	"strings"
)

// cargo reads the registries and replaced sources of the user's file.
func cargo(r *reading) error {
	home := r.Getenv("CARGO_HOME")
	if home == "" {
		home = filepath.Join(r.Home, ".cargo")
	}
	for _, name := range []string{"config.toml", "config"} {
		path := filepath.Join(home, name)
		text, err := r.file(path)
		if err != nil {
			return err
		}
		if text == "" {
			continue
		}
		if err := r.cargoFile(path, text); err != nil {
			return err
		}
		r.show = append(r.show, path)
		break
	}
	if len(r.places) == 0 {
		return r.unset("name one in ~/.cargo/config.toml: [registries.NAME] index, or [source.crates-io] replace-with")
	}
	return nil
}

func (r *reading) cargoFile(path, text string) error {
	entries, err := tables(path, text)
	if err != nil {
		return err
	}
	for _, e := range entries {
		from := fmt.Sprintf("%s:%d", path, e.line)
		section, _, _ := strings.Cut(e.key, ".")
		field := e.key[strings.LastIndexByte(e.key, '.')+1:]
		switch {
		case field == "token" || field == "secret-key" || strings.HasPrefix(e.key, "http.proxy") && strings.Contains(e.value, "@"):
			return Trouble{fmt.Sprintf("%s: %s is a secret, and the file is shown inside", from, e.key), "cargo login keeps it in credentials.toml instead"}
		case section == "registries" && field == "index", section == "registry" && field == "index", section == "source" && field == "registry":
		default:
			continue
		}
		address, sparse := strings.CutPrefix(e.value, "sparse+")
		if !sparse {
			return Trouble{fmt.Sprintf("%s: the index is a git repository", from), `use a sparse index: "sparse+https://…"`}
		}
		if err := r.add(from, address, true); err != nil {
			return err
		}
	}
	return nil
}
