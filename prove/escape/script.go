package escape

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// quoted is a word for sh.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// assignments sets variables in sh.
func assignments(vars map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		fmt.Fprintf(&b, "export %s=%s\n", name, quoted(vars[name]))
	}
	return b.String()
}

// pythonAssignments sets them in Python. PYTHONDONTWRITEBYTECODE comes too late
// for what the program imports, hence the other way.
func pythonAssignments(vars map[string]string) string {
	var b strings.Builder
	b.WriteString("import os as _os, sys as _sys\n_sys.dont_write_bytecode = True\n")
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		fmt.Fprintf(&b, "_os.environ[%s] = %s\n", pyQuoted(name), pyQuoted(vars[name]))
	}
	return b.String()
}

func pyQuoted(s string) string {
	var b strings.Builder
	b.WriteString("b'")
	for i := range len(s) {
		fmt.Fprintf(&b, "\\x%02x", s[i])
	}
	return b.String() + "'.decode('utf-8', 'surrogateescape')"
}

// programs writes what the sandboxed command is made of into the workspace,
// where every sandbox lets it be read, and gives the variables about it. What a
// probe is told stands in the probe itself: most sandboxes clean the environment.
func (w *worker) programs(m *maker, p *place, c Case, a account, vars map[string]string) map[string]string {
	dir := filepath.Join(p.Work, "probe")
	m.dir(dir)
	m.write(filepath.Join(dir, "ca.pem"), string(w.world.CA.PEM()), 0o644)
	extra := map[string]string{}
	if c.Sections["c"] != "" {
		extra["PROGRAM"] = filepath.Join(dir, "program")
		m.add(install(w.Compiled[c.ID], extra["PROGRAM"], 0o755))
	}
	told := maps.Clone(vars)
	maps.Copy(told, extra)
	path := filepath.Join(dir, "probe")
	switch c.Language() {
	case "probe":
		m.write(path, assignments(told)+c.Sections["probe"], 0o755)
	case "python":
		path += ".py"
		m.write(path, pythonAssignments(told)+c.Sections["python"], 0o755)
		libraries, err := filepath.Glob(filepath.Join(w.Base[a.Kind], "lib", "*.py"))
		m.add(err)
		for _, file := range libraries {
			m.add(install(file, filepath.Join(dir, filepath.Base(file)), 0o644))
		}
	case "c":
		m.write(path, "#!/bin/sh\n"+assignments(told)+"exec "+quoted(extra["PROGRAM"])+` "$@"`+"\n", 0o755)
	default:
		return extra
	}
	extra["PROBE"] = path
	return extra
}

// hostScript is what is run outside.
func hostScript(c Case, text string) string {
	if text == "" {
		text = map[string]string{"probe": `sandbox sh "$PROBE"`, "python": `sandbox python3 "$PROBE"`, "c": `sandbox "$PROBE"`}[c.Language()]
	}
	return `sandbox() { "$SANDBOX" "$@"; }
baseline() { echo again >"$RUN/ask" && read -r _ <"$RUN/answer"; }
` + text + "\n"
}

// layer is the case's own policy as a file that builds on the configuration's.
func layer(text string) string {
	var head string
	if !strings.Contains("\n"+text, "\nversion:") {
		head += "version: 1\n"
	}
	if !strings.Contains("\n"+text, "\nextends:") {
		head += "extends: [configuration.yaml]\n"
	}
	if !strings.Contains("\n"+text, "\nname:") {
		head += "name: escapes\n"
	}
	return head + text
}
