package supply

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// controlModule is a module of the binary; the made-up database says that every
// version of it is vulnerable.
const controlModule = "github.com/gobwas/ws"

// vulnerabilities asks the database for what the binary is built from. Before that a
// made-up database, which lies here, shows that something would be found.
func (r *run) vulnerabilities(ctx context.Context) (string, error) {
	tool := filepath.Join(r.o.Work, "govulncheck")
	if out, err := output(r.command(ctx, "packaging/tool", "govulncheck", tool)); err != nil {
		if unreachable(out + err.Error()) {
			r.missing("govulncheck", "known vulnerabilities", "govulncheck could not be fetched")
			return "not exercised", nil
		}
		return "", err
	}
	made := filepath.Join(r.o.Work, "vulndb")
	if err := makeDatabase(made); err != nil {
		return "", err
	}
	out, err := output(r.command(ctx, tool, "-db", "file://"+made, "-mode", "binary", "-scan", "module", "-format", "json", r.o.Bin))
	if err != nil {
		return "", err
	}
	if _, finding, ok := strings.Cut(out, `"finding"`); !ok || !strings.Contains(finding, "GO-2099-0001") || !strings.Contains(finding, controlModule) {
		return "", fmt.Errorf("%w: %s", errControl, tail(out))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	args := []string{"-tags", tags, "-format", "json"}
	if db := os.Getenv("GOVULNDB"); db != "" {
		args = append(args, "-db", db)
	}
	out, err = output(r.command(ctx, tool, append(args, "./cmd/hermes-wrap")...))
	if err != nil && unreachable(err.Error()) {
		r.missing("vulnerability database", "vulnerabilities that are known of what the binary is built from",
			"the vulnerability database cannot be reached, and GOVULNDB names no other; a made-up one was searched, and what it holds was found")
		return "not exercised: no database here. In a made-up one what it holds was found", nil
	}
	if err != nil {
		return "", err
	}
	found, when, err := findings(out)
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return "", fmt.Errorf("functions that the binary can reach are vulnerable: %s", strings.Join(found, ", "))
	}
	return "none that the binary can reach, in the database of " + when, nil
}

// findings reads what govulncheck prints as JSON: what is reachable, and of when the
// database is.
func findings(out string) (found []string, when string, err error) {
	seen := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var m struct {
			Config *struct {
				DB   string `json:"db"`
				Last string `json:"db_last_modified"`
			} `json:"config"`
			Finding *struct {
				OSV   string `json:"osv"`
				Trace []struct {
					Function string `json:"function"`
				} `json:"trace"`
			} `json:"finding"`
		}
		if err := d.Decode(&m); err != nil {
			return nil, "", fmt.Errorf("read what govulncheck says: %w", err)
		}
		if m.Config != nil {
			when = m.Config.Last
		}
		if f := m.Finding; f != nil && len(f.Trace) > 0 && f.Trace[0].Function != "" && !seen[f.OSV] {
			seen[f.OSV] = true
			found = append(found, f.OSV)
		}
	}
	if when == "" {
		return nil, "", fmt.Errorf("govulncheck does not say which database it asked: %s", tail(out))
	}
	return found, when, nil
}

// makeDatabase writes a database with one entry, in the form that govulncheck reads.
func makeDatabase(dir string) error {
	const when = "2099-01-01T00:00:00Z"
	for name, v := range map[string]any{
		"index/db.json":      map[string]string{"modified": when},
		"index/modules.json": []any{map[string]any{"path": controlModule, "vulns": []any{map[string]string{"id": "GO-2099-0001", "modified": when}}}},
		"index/vulns.json":   []any{map[string]any{"id": "GO-2099-0001", "modified": when}},
		"ID/GO-2099-0001.json": map[string]any{
			"schema_version": "1.3.1", "id": "GO-2099-0001", "modified": when, "published": when, "summary": "made up",
			"details":           "made up",
			"database_specific": map[string]string{"url": "https://example.org"},
			"affected": []any{map[string]any{
				"package":            map[string]string{"name": controlModule, "ecosystem": "Go"},
				"ranges":             []any{map[string]any{"type": "SEMVER", "events": []any{map[string]string{"introduced": "0"}}}},
				"ecosystem_specific": map[string]any{},
			}},
		},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
