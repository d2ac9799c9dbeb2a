package supply

import (
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// bom is as much of a CycloneDX document as is changed here.
type bom map[string]any

// SBOM gives the document for a binary: what the tool cyclonedx-gomod reads from the
// binary itself, with the licences, and the libraries of C.
func SBOM(ctx context.Context, root, bin, tool string) ([]byte, error) {
	out, err := output(exec.CommandContext(ctx, tool, "bin", "-json", "-noserial", "-notimestamp", bin))
	if err != nil {
		return nil, err
	}
	var doc bom
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		return nil, fmt.Errorf("read what the tool wrote: %w", err)
	}
	modules, err := Modules(ctx, root)
	if err != nil {
		return nil, err
	}
	libraries, err := CLibraries(ctx, root)
	if err != nil {
		return nil, err
	}
	if err := doc.license(modules); err != nil {
		return nil, err
	}
	doc.add(append(libraries, modules[0]))
	if wrong := Compare([]byte(mustJSON(doc)), bin); len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	return []byte(mustJSON(doc) + "\n"), nil
}

func (doc *bom) read(b []byte) error { return json.Unmarshal(b, doc) }

func mustJSON(doc bom) string {
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return ""
	}
	return string(b)
}

func (doc bom) components() []map[string]any {
	list, _ := doc["components"].([]any)
	var all []map[string]any
	for _, c := range list {
		if m, ok := c.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

// license adds what is known of the licences. Each component must have one.
func (doc bom) license(modules []Component) error {
	for _, c := range doc.components() {
		i := slices.IndexFunc(modules, func(m Component) bool { return m.Name == c["name"] && m.Version == c["version"] })
		if i < 0 {
			return fmt.Errorf("the binary holds %v %v, which the source does not: it was built from another tree", c["name"], c["version"])
		}
		c["licenses"] = expression(modules[i])
	}
	return nil
}

func expression(c Component) []any {
	return []any{map[string]any{"expression": c.licence()}}
}

// add adds what a Go binary does not say about itself.
func (doc bom) add(extra []Component) {
	list, _ := doc["components"].([]any)
	for _, c := range extra {
		purl := "pkg:generic/" + c.Name + "@" + c.Version
		entry := map[string]any{
			"bom-ref": purl, "type": "library", "name": c.Name, "version": c.Version, "purl": purl, "scope": "required", "licenses": expression(c),
		}
		if c.Note != "" {
			entry["description"] = c.Note
		}
		list = append(list, entry)
	}
	doc["components"] = list
}

// Compare tells what a document says differently from the binary itself: every
// module with its version and hash must be there, the libraries of C and the
// standard library, and nothing else.
func Compare(document []byte, bin string) (wrong []string) {
	var doc bom
	if err := json.Unmarshal(document, &doc); err != nil {
		return []string{"it is no JSON: " + err.Error()}
	}
	info, err := buildinfo.ReadFile(bin)
	if err != nil {
		return []string{err.Error()}
	}
	want := map[string]string{"std": info.GoVersion}
	hashes := map[string]string{}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		want[m.Path] = m.Version
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil {
			hashes[m.Path] = hex.EncodeToString(sum)
		}
	}
	for _, l := range cLibraries {
		want[l.name] = "" // whichever
	}
	for _, c := range doc.components() {
		name, version := fmt.Sprint(c["name"]), fmt.Sprint(c["version"])
		expected, ok := want[name]
		switch {
		case !ok:
			wrong = append(wrong, "it lists "+name+", which is not in the binary")
		case expected != "" && expected != version || version == "":
			wrong = append(wrong, fmt.Sprintf("%s: it says %s, the binary %s", name, version, expected))
		case hashes[name] != "" && !strings.Contains(fmt.Sprint(c["hashes"]), hashes[name]):
			wrong = append(wrong, name+": its hash is another one")
		case c["licenses"] == nil:
			wrong = append(wrong, name+": it has no licence")
		}
		delete(want, name)
	}
	for name := range want {
		wrong = append(wrong, "it does not list "+name)
	}
	slices.Sort(wrong)
	return wrong
}
