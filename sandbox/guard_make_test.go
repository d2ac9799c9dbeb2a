package sandbox

import (
	"os"
	"strings"
	"testing"
)

// A directory that may be made is made, and what may not appear in it does not,
// by whatever way.
func TestGuardMakesDirectory(t *testing.T) {
	tools := requireGuardTools(t)
	for _, c := range []struct {
		name, script string
		want         string // what the guarded run prints; the bare one prints something else
		left         string // names that are there afterwards
	}{
		{"ordinary", "mkdir cron && echo x > cron/other && ls cron", "other", "cron"},
		{"create", "mkdir cron; $PROBE openat . cron/jobs.json 0x41", "EROFS", "cron"},
		{"by descriptor", "mkdir cron; cd cron; $PROBE openat . jobs.json 0x41", "EROFS", "cron"},
		{"rename into it", "mkdir cron; echo > f; $PROBE rename f cron/jobs.json", "EROFS", "cron f"},
		{"link into it", "mkdir cron; echo > f; $PROBE link f cron/jobs.json", "EROFS", "cron f"},
		{"mkdir in it", "mkdir cron; $PROBE mkdir cron/jobs.json", "EROFS", "cron"},
		{"rename it away", "mkdir cron; $PROBE rename cron other", "EROFS", "cron"},
		{"rename onto it", "mkdir x; echo > x/jobs.json; $PROBE rename x cron", "EROFS", "x"},
		{"a link in its place", "mkdir x; ln -s x cron 2>/dev/null; ls", "x", "x"},
		{"a file in its place", "$PROBE openat . cron 0x41", "EROFS", ""},
		{"made twice", "mkdir cron; rmdir cron; mkdir cron; $PROBE openat . cron/jobs.json 0x41", "EROFS", "cron"},
		{"made often", `python3 -c 'import os; [(os.mkdir("cron"), os.rmdir("cron")) for _ in range(600)]'; mkdir cron; $PROBE openat . cron/jobs.json 0x41`, "EROFS", "cron"},
		{"deeper", "mkdir -p deep/a; $PROBE openat . deep/a/b 0x41; echo > deep/a/c; ls deep/a", "EROFS\nc", "deep"},
		{"a parent that is there", "mkdir -p cron; mkdir -p cron; $PROBE openat . cron/jobs.json 0x41", "EROFS", "cron"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bare, inside := t.TempDir(), t.TempDir()
			control, _ := tools.run(t, bare, c.script)
			flags := []string{"-m", inside, "cron", "jobs.json", "-m", inside, "deep", "a/b"}
			got, _ := tools.command(t, inside, []string{"bash", "-c", c.script}, flags...)
			if strings.TrimSpace(got) != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if c.name != "ordinary" && strings.TrimSpace(control) == c.want {
				t.Errorf("without the guard: got %q too", control)
			}
			if left := names(t, inside); left != c.left {
				t.Errorf("left: got %q, want %q", left, c.left)
			}
		})
	}
}

// Threads that make, remove and fill the directory at once never get the file.
func TestGuardMakesDirectoryInRaces(t *testing.T) {
	tools := requireGuardTools(t)
	const script = `python3 -c '
import os, threading, time
end, got = time.time() + 2, []
def make():
    while time.time() < end:
        for f in (lambda: os.mkdir("cron"), lambda: os.rmdir("cron"), lambda: os.rename("cron", "y"), lambda: os.rename("x", "cron")):
            try: f()
            except OSError: pass
def fill():
    while time.time() < end:
        try:
            os.close(os.open("cron/jobs.json", os.O_CREAT | os.O_WRONLY)); got.append(1); os.unlink("cron/jobs.json")
        except OSError: pass
os.mkdir("x")
ts = [threading.Thread(target=f) for f in (make, make, fill, fill)]
[t.start() for t in ts]; [t.join() for t in ts]
print("created" if got else "never")'`
	if out, _ := tools.run(t, t.TempDir(), script); out != "created\n" {
		t.Errorf("without the guard: got %q, want that the file was created", out)
	}
	dir := t.TempDir()
	if out, _ := tools.command(t, dir, []string{"bash", "-c", script}, "-m", dir, "cron", "jobs.json"); out != "never\n" {
		t.Errorf("got %q, want that the file was never created", out)
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}
