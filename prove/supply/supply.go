// Package supply is the part of the proof about how the binary comes to be: that
// anybody can build the same one, what is in it and under which licences, that
// nothing it is built from can change unnoticed, and that its packages can be
// signed and verified.
package supply

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

const intro = `Each line was carried out here and now. A build is called reproducible when its bytes are the same from another directory,
home, user's umask, time zone, host name in the environment, module cache and build cache, and at another time. What the binary is said to hold
is compared with the binary itself, and with what the linker says that it took.`

// run is one run of the part.
type run struct {
	o    report.Options
	part report.Part
	rows [][]string
}

// Run carries the part out.
func Run(ctx context.Context, o report.Options) (report.Part, error) {
	r := &run{o: o, part: report.Part{Title: "Supply chain", Intro: intro}}
	for _, step := range []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"Versions are pinned", r.pins},
		{"Modules are as go.sum says", r.verifyModules},
		{"Licences", r.licences},
		{"What the linker took", r.linkedC},
		{"SBOM", r.sbom},
		{"Reproducible binary", r.binary},
		{"Reproducible packages", r.packages},
		{"Signed checksums", r.signatures},
		{"Known vulnerabilities", r.vulnerabilities},
	} {
		o.Say("supply: %s", step.name)
		began := time.Now()
		result, err := step.do(ctx)
		switch {
		case ctx.Err() != nil:
			return r.part, ctx.Err()
		case err != nil:
			r.part.Failed = append(r.part.Failed, step.name+": "+err.Error())
			result = "FAILED"
		}
		r.rows = append(r.rows, []string{step.name, oneLine(result), time.Since(began).Round(time.Second).String()})
	}
	r.part.Tables = []report.Table{{Title: "What was checked", Columns: []string{"Check", "Result", "Took"}, Rows: r.rows}}
	return r.part, nil
}

func oneLine(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

// missing notes what could not be exercised on this machine.
func (r *run) missing(id, what, reason string) {
	r.part.Missing = append(r.part.Missing, report.Missing{ID: id, What: what, Reason: "machine: " + reason})
}

func (r *run) pins(context.Context) (string, error) {
	files, err := tracked(r.o.Root)
	if err != nil {
		return "", err
	}
	if loose := Loose(r.o.Root, files); len(loose) > 0 {
		return "", fmt.Errorf("%s", strings.Join(loose, "; "))
	}
	return strconv.Itoa(len(files)) + " files: no action without a commit, no tool without a version and hashes", nil
}

func (r *run) verifyModules(ctx context.Context) (string, error) {
	cmd := r.command(ctx, "go", "mod", "verify")
	out, err := output(cmd)
	return strings.TrimSpace(out), err
}

func (r *run) licences(ctx context.Context) (string, error) {
	modules, err := Modules(ctx, r.o.Root)
	if err != nil {
		return "", err
	}
	if why := Refused(modules); len(why) > 0 {
		return "", fmt.Errorf("%s", strings.Join(why, "; "))
	}
	want, err := ThirdParty(ctx, r.o.Root)
	if err != nil {
		return "", err
	}
	got, err := os.ReadFile(filepath.Join(r.o.Root, "packaging", "THIRD_PARTY"))
	if err != nil {
		return "", err
	}
	if string(got) != want {
		return "", fmt.Errorf("packaging/THIRD_PARTY is not what \"go run ./prove/supply/bill licences\" writes")
	}
	return fmt.Sprintf("%d Go modules and the standard library, each under one of %s; %d C libraries; their texts are in the packages",
		len(modules)-1, strings.Join(allowed, ", "), len(cLibraries)), nil
}

func (r *run) linkedC(ctx context.Context) (string, error) {
	unknown, used, err := strangers(ctx, r.o.Root, filepath.Join(r.o.Work, "traced"))
	if err != nil {
		return "", err
	}
	if len(unknown) > 0 || len(used) != len(cLibraries) {
		return "", fmt.Errorf("the linker took %v and %v, want %d libraries and nothing else", used, unknown, len(cLibraries))
	}
	return strings.Join(used, ", ") + ", and nothing else", nil
}

func (r *run) sbom(ctx context.Context) (string, error) {
	tool := filepath.Join(r.o.Work, "cyclonedx-gomod")
	if out, err := output(r.command(ctx, "packaging/tool", "cyclonedx-gomod", tool)); err != nil {
		if unreachable(out + err.Error()) {
			r.missing("sbom", "the SBOM", "the tool that reads it from the binary could not be fetched")
			return "not exercised", nil
		}
		return "", err
	}
	document, err := SBOM(ctx, r.o.Root, r.o.Bin, tool)
	if err != nil {
		return "", err
	}
	out := filepath.Join(r.o.Work, "hermes-wrap.cdx.json")
	if err := os.WriteFile(out, document, 0o644); err != nil {
		return "", err
	}
	var doc bom
	_ = doc.read(document)
	return fmt.Sprintf("CycloneDX, %d components with version and licence, the same as the binary itself names", len(doc.components())), nil
}
