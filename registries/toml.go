package registries

import (
	"fmt"
	"strings"
)

var (
	tomlHeader = lazy(`^\[{1,2}\s*([^\]]+?)\s*\]{1,2}\s*(?:#.*)?$`)
	tomlPair   = lazy(`^((?:[A-Za-z0-9_-]+|"[^"\\]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"\\]*"|'[^']*'))*)\s*=\s*(.*)$`)
	tomlString = lazy(`"([^"\\]*)"|'([^']*)'`)
	tomlInner  = lazy(`([A-Za-z0-9_-]+)\s*=\s*(?:"([^"\\]*)"|'([^']*)')`)
)

// tables reads the strings of a TOML file, with their dotted keys; of a list all
// strings, of an inline table each. A file that could be read in two ways (a
// string over several lines) is refused.
func tables(path, text string) (entries []entry, err error) {
	section, list := "", "" // list is the key of one that goes on
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch m := tomlHeader().FindStringSubmatch(line); {
		case line == "" || line[0] == '#':
		case list != "":
			for _, s := range tomlString().FindAllStringSubmatch(line, -1) {
				entries = append(entries, entry{key: list, value: s[1] + s[2], line: i + 1})
			}
			if strings.Contains(line, "]") {
				list = ""
			}
		case strings.Contains(line, `"""`) || strings.Contains(line, "'''"):
			return nil, Trouble{fmt.Sprintf("%s:%d: a string over several lines is not read", path, i+1), "write it on one line"}
		case m != nil:
			section = plainKey(m[1]) + "."
		default:
			entries = append(entries, pair(section, line, i+1)...)
			if m := tomlPair().FindStringSubmatch(line); m != nil && strings.HasPrefix(m[2], "[") && !strings.Contains(m[2], "]") {
				list = section + plainKey(m[1])
			}
		}
	}
	return entries, nil
}

// pair reads one line.
func pair(section, line string, n int) (out []entry) {
	m := tomlPair().FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	key, value := section+plainKey(m[1]), m[2]
	if strings.HasPrefix(value, "{") {
		for _, in := range tomlInner().FindAllStringSubmatch(value, -1) {
			out = append(out, entry{key: key + "." + in[1], value: in[2] + in[3], line: n})
		}
		return out
	}
	if strings.HasPrefix(value, "[") {
		for _, s := range tomlString().FindAllStringSubmatch(value, -1) {
			out = append(out, entry{key: key, value: s[1] + s[2], line: n})
		}
		return out
	}
	if s := tomlString().FindStringSubmatch(value); s != nil && strings.HasPrefix(value, s[0]) {
		out = append(out, entry{key: key, value: s[1] + s[2], line: n})
	}
	return out
}

// plainKey takes quotes and spaces out of a dotted key.
func plainKey(k string) string {
	return strings.NewReplacer(`"`, "", "'", "", " ", "", "\t", "").Replace(k)
}
