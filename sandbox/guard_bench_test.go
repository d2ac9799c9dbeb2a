package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkGuardUntar unpacks 5,000 files, bare and under the guard, side by
// side. Set TMPDIR to a tmpfs to leave the disk out.
func BenchmarkGuardUntar(b *testing.B) {
	tools, err := buildGuardTools()
	if err != nil {
		b.Fatalf("compile the harness: %v", err)
	}
	dir := b.TempDir()
	const pack = `mkdir tree && cd tree && for d in {1..50}; do mkdir $d; for f in {1..100}; do echo $f > $d/$f; done; done && cd .. && tar -cf t.tar tree && rm -r tree`
	bash := exec.Command("bash", "-c", pack)
	bash.Dir = dir
	if out, err := bash.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for name, flags := range map[string][]string{"bare": {"-n"}, "guarded": {"-p", dir, ".envrc"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				cmd := exec.Command(tools.harness, append(flags, "--", "tar", "-xf", "t.tar")...)
				cmd.Dir = dir
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				b.StopTimer()
				if err := os.RemoveAll(filepath.Join(dir, "tree")); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/5051, "µs/file")
		})
	}
}
