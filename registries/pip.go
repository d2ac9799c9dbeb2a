package registries

import (
	"fmt"
	"path/filepath"
	"strings"
)

// pip reads the indexes of pip and uv. Files of packages may lie anywhere on an
// index's host, so that all of it is read.
func pip(r *reading) error {
	var index setting
	var extra []setting
	take := func(from, name, value string) {
		switch name {
		case "index-url", "default-index", "index_url":
			if index.value == "" {
				index = setting{value: value, from: from}
			}
		case "extra-index-url", "index", "extra_index_url":
			for _, v := range strings.Fields(value) {
				extra = append(extra, setting{value: v, from: from})
			}
		}
	}
	for _, name := range []string{"PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL"} {
		_, key, _ := strings.Cut(name, "_")
		if v := r.Getenv(name); v != "" {
			take(name, strings.ToLower(strings.ReplaceAll(key, "_", "-")), v)
		}
	}
	if err := r.pipFiles(take); err != nil {
		return err
	}
	if err := r.uvFiles(take); err != nil {
		return err
	}
	if index.value == "" && len(extra) == 0 {
		return r.unset("pip config set global.index-url URL writes one to pip's configuration")
	}
	return r.pipPlaces(index, extra)
}

func (r *reading) pipFiles(take func(from, name, value string)) error {
	for _, path := range []string{
		r.Getenv("PIP_CONFIG_FILE"), filepath.Join(r.config(), "pip/pip.conf"), filepath.Join(r.Home, ".pip/pip.conf"), "/etc/pip.conf",
	} {
		text, err := r.file(path)
		if err != nil {
			return err
		}
		for _, e := range ini(text) {
			if e.section == "global" || e.section == "install" || e.section == "download" {
				take(fmt.Sprintf("%s:%d", path, e.line), e.key, e.value)
			}
		}
	}
	return nil
}

func (r *reading) uvFiles(take func(from, name, value string)) error {
	for _, path := range []string{r.Getenv("UV_CONFIG_FILE"), filepath.Join(r.config(), "uv/uv.toml"), "/etc/uv/uv.toml"} {
		text, err := r.file(path)
		if err != nil {
			return err
		}
		entries, err := tables(path, text)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := strings.TrimPrefix(e.key, "pip.")
			if e.key == "index.url" {
				name = "index"
			}
			take(fmt.Sprintf("%s:%d", path, e.line), name, e.value)
		}
	}
	return nil
}

func (r *reading) pipPlaces(index setting, extra []setting) error {
	var more []string
	if index.value != "" {
		if err := r.add(index.from, index.value, true); err != nil {
			return err
		}
		p, _ := parsePlace(index.from, index.value) // add has judged it
		r.env["PIP_INDEX_URL"], r.env["UV_DEFAULT_INDEX"] = p.url(), p.url()
	}
	for _, s := range extra {
		if err := r.add(s.from, s.value, true); err != nil {
			return err
		}
		p, _ := parsePlace(s.from, s.value)
		more = append(more, p.url())
	}
	if len(more) > 0 {
		r.env["PIP_EXTRA_INDEX_URL"], r.env["UV_INDEX"] = strings.Join(more, " "), strings.Join(more, " ")
	}
	r.env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
	return nil
}
