package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// findBroker sets B to the broker of this run: the harness starts a session of
// its own, and the broker stays in it.
const findBroker = `sid=$(cut -d' ' -f6 /proc/self/stat)
for p in /proc/[0-9]*; do
  if [ "$(cat $p/comm 2>/dev/null)" = hw-guard ] && [ "$(cut -d' ' -f6 $p/stat 2>/dev/null)" = "$sid" ]; then B=${p#/proc/}; fi
done
[ -n "$B" ] || { echo no broker; exit 1; }
`

// Whoever kills the broker can create nothing any more.
func TestGuardBrokerKilled(t *testing.T) {
	tools := requireGuardTools(t)
	dir := guardDir(t)
	script := findBroker + "kill -9 $B; while [ -e /proc/$B/exe ]; do :; done; $PROBE mkdir x; $PROBE mkdir .envrc; $PROBE bind s"
	out, _ := tools.run(t, dir, script, ".envrc")
	if want := strings.Repeat("ENOSYS\n", 3); !strings.HasSuffix(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
	if exists(t, filepath.Join(dir, ".envrc")) {
		t.Error("the protected name exists")
	}
}

// The broker has rights over itself that the agent has not, and must not lend
// them.
func TestGuardBrokerIsNoDeputy(t *testing.T) {
	tools := requireGuardTools(t)
	cases := map[string]string{
		"memory":            "$PROBE openat / proc/$B/mem 2",
		"own descriptor":    "$PROBE openat / proc/$B/fd/0 1",
		"root":              "$PROBE mkdir /proc/$B/root/$PWD/x",
		"through directory": "cd /proc/$B && $PROBE open comm",
		"by descriptor":     "$PROBE openat /proc/$B comm 1",
		"dot dot":           "$PROBE open /proc/self/../$B/comm",
		"symlink":           "ln -s /proc/$B/mem l; $PROBE openat . l 2",
		"another process":   "sleep 60 & $PROBE mkdir /proc/$!/cwd/x; kill $!",
	}
	for name, script := range cases {
		t.Run(name, func(t *testing.T) {
			if out, _ := tools.run(t, guardDir(t), findBroker+script, ".envrc"); out != "EACCES\n" {
				t.Errorf("got %q, want EACCES", out)
			}
		})
	}
}

// The broker ends with the last process of the agent, and holds none of its
// descriptors meanwhile: the output of the command ends when the command does.
func TestGuardBrokerEnds(t *testing.T) {
	tools := requireGuardTools(t)
	dir := guardDir(t)
	script := findBroker + "echo $B; cat /proc/$B/status | grep -E '^(NoNewPrivs|Seccomp|CapEff):' | tr -d '\\t' | tr '\\n' ' '"
	out, ok := tools.run(t, dir, script, ".envrc")
	if !ok {
		t.Fatal(out)
	}
	pid, status, _ := strings.Cut(out, "\n")
	if !strings.Contains(status, "NoNewPrivs:1 ") || !strings.Contains(status, "Seccomp:2 ") {
		t.Errorf("got %q, want NoNewPrivs:1 and Seccomp:2", status)
	}
	for {
		data, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil || strings.Contains(string(data), ") Z ") || !strings.Contains(string(data), "(hw-guard)") {
			return
		}
	}
}

// In a user namespace of its own, as the launcher makes it, the broker serves
// programs too that do not let themselves be traced.
func TestGuardNonDumpable(t *testing.T) {
	tools := requireGuardTools(t)
	const script = `import ctypes, os
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
os.mkdir("x")
try: os.mkdir(".envrc")
except OSError as e: print(e.errno)
d = os.open("sub", os.O_RDONLY)
os.mkdir("y", dir_fd=d)
print(sorted(os.listdir("sub")))`
	dir := guardDir(t)
	flags := append([]string{"-u"}, tools.flags(dir, []string{".envrc"})...)
	out, _ := tools.command(t, dir, []string{"python3", "-c", script}, flags...)
	if want := "30\n['deep', 'here', 'y']\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}
