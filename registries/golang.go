package registries

import (
	"fmt"
	"path/filepath"
	"strings"
)

// golang reads what the go command is told: by its environment, by the user's
// file, by the installed Go's own.
func golang(r *reading) error {
	found := map[string]setting{}
	names := []string{"GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOSUMDB", "GONOPROXY"}
	for _, name := range names {
		if v := r.Getenv(name); v != "" {
			found[name] = setting{value: v, from: name}
		}
	}
	user := r.Getenv("GOENV")
	if user == "" {
		user = filepath.Join(r.config(), "go/env")
	}
	root := r.Getenv("GOROOT")
	if bin := r.installed("go"); root == "" && bin != "" {
		root = filepath.Dir(bin)
	}
	for _, path := range []string{user, filepath.Join(root, "go.env")} {
		text, err := r.file(path)
		if err != nil {
			return err
		}
		for _, e := range ini(text) {
			if _, have := found[e.key]; !have {
				found[e.key] = setting{value: e.value, from: fmt.Sprintf("%s:%d", path, e.line)}
			}
		}
	}
	if err := r.goProxies(found["GOPROXY"]); err != nil {
		return err
	}
	if len(r.places) == 0 {
		return r.unset("go env -w GOPROXY=URL writes one; direct and off open nothing")
	}
	for _, name := range names[2:] {
		if v := found[name].value; v != "" && !strings.ContainsAny(v, "$\n") {
			r.env[name] = v
		}
	}
	return r.goSums(found["GOSUMDB"])
}

// goProxies takes the proxies of the list up to "off". "direct" is any host.
func (r *reading) goProxies(s setting) error {
	var inside []string
	for _, entry := range strings.FieldsFunc(s.value, func(c rune) bool { return c == ',' || c == '|' }) {
		switch entry = strings.TrimSpace(entry); entry {
		case "direct", "":
			continue
		case "off":
		default:
			if err := r.add(s.from, entry, false); err != nil {
				return err
			}
			p, _ := parsePlace(s.from, entry) // add has judged it
			inside = append(inside, strings.TrimSuffix(p.url(), "/"))
			continue
		}
		break
	}
	r.env["GOPROXY"] = strings.Join(inside, ",")
	return nil
}

// goSums takes the checksum database: "off", "NAME", "NAME+KEY", with a URL
// behind it where it is reached by another one.
func (r *reading) goSums(s setting) error {
	if s.value == "" {
		return nil
	}
	r.env["GOSUMDB"] = s.value
	fields := strings.Fields(s.value)
	if s.value == "off" || len(fields) == 0 {
		return nil
	}
	if strings.ContainsAny(s.value, "$\n") {
		return Trouble{fmt.Sprintf("%s: GOSUMDB is not a name and a URL", s.from), "correct it there"}
	}
	name, _, _ := strings.Cut(fields[0], "+")
	address := "https://" + name
	if len(fields) > 1 {
		address = fields[1]
	}
	return r.add(s.from, address, false)
}
