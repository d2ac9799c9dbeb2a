package kernels

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
)

func TestVersionsAreCompared(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"6.12", "6.1", true}, {"6.1", "6.12", false}, {"7.2", "6.12", true}, {"6.1", "6.1", false}, {"5.10", "5.9", true}} {
		if got := newer(c.a, c.b); got != c.want {
			t.Errorf("newer(%s, %s): got %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestGoldenIsOfTheNewestKernelBefore(t *testing.T) {
	root := t.TempDir()
	for _, v := range []string{"5.10", "6.1", "6.12"} {
		if err := (golden{"v2/plain/doctor/user": "of " + v + "\nand more"}).write(goldenFile(root, v)); err != nil {
			t.Fatal(err)
		}
	}
	for version, want := range map[string]string{"6.1": "6.1", "6.9": "6.1", "7.4": "6.12", "5.4": ""} {
		g, of, err := readGolden(root, version)
		if err != nil || of != want {
			t.Errorf("%s: got %q, %v, want %q", version, of, err, want)
		}
		if want != "" && g["v2/plain/doctor/user"] != "of "+want+"\nand more" {
			t.Errorf("%s: got %q", version, g)
		}
	}
}

func TestLaunchIsHeldRefusedOrWrong(t *testing.T) {
	for _, c := range []struct {
		name  string
		a     protocol.Answer
		short string
		wrong bool
	}{
		{"held", protocol.Answer{Stdout: "held a: EPERM\nDONE\n"}, "held", false},
		{"escaped", protocol.Answer{Stdout: "ESCAPED a\nDONE\n"}, "held", true},
		{"not to its end", protocol.Answer{Stdout: "held a: EPERM\n"}, "broken", true},
		{"refused", protocol.Answer{Exit: 125, Stderr: "hermes-wrap: error: x\nhermes-wrap: hint: y\n"}, "refused", false},
		{"refused without a remedy", protocol.Answer{Exit: 125, Stderr: "hermes-wrap: error: x\n"}, "refused", true},
		{"refused after it ran", protocol.Answer{Exit: 125, Stdout: "held a: EPERM\n", Stderr: "hermes-wrap: error: x\nhermes-wrap: hint: y\n"}, "broken", true},
		{"a bug", protocol.Answer{Exit: 125, Stderr: "hermes-wrap: error: BUG: x\nhermes-wrap: hint: y\n"}, "refused", true},
		{"late", protocol.Answer{Exit: -1, Late: true}, "late", true},
	} {
		v := judgeLaunch(c.a)
		if v.Short != c.short || (len(v.Wrong) > 0) != c.wrong {
			t.Errorf("%s: got %+v", c.name, v)
		}
	}
}

func TestEscapesOfAGuestAreHeldToTheSameAsOurs(t *testing.T) {
	const contained, sum = "A04   user  strict       contained    \n", "seed 7: 1 contained, 0 escaped, 0 failed, 0 not exercised; 9s\n"
	with := func(line, sum string, exit int) protocol.Answer {
		return protocol.Answer{Exit: exit, Stdout: contained + line + "seed 7: 1 contained, " + sum + "; 9s\n"}
	}
	for _, c := range []struct {
		name          string
		a             protocol.Answer
		missing, want int
	}{
		{"contained", protocol.Answer{Stdout: contained + sum}, 0, 0},
		{"escaped", with("A05   user  strict       escaped       ESCAPED it\n      stdout: x\n", "1 escaped, 0 failed, 0 not exercised", 1), 0, 1},
		{"failed", with("A05   user  strict       failed        unfinished; no DONE; exit 1: x\n", "0 escaped, 1 failed, 0 not exercised", 1), 0, 1},
		{"no twin", with("A05   user  strict       not exercised control: bare, nothing was touched: \n", "0 escaped, 0 failed, 1 not exercised", 1), 0, 1},
		{"a twin that spells a reason", with("A05   user  strict       not exercised control: kernel: x\n", "0 escaped, 0 failed, 1 not exercised", 1), 0, 1},
		{"no feature", with("A26b  user  strict       not exercised kernel: needs x32, found none\n", "0 escaped, 0 failed, 1 not exercised", 0), 1, 0},
		{"a variant without a command", with("A26b  user  strict       not exercised [\"a\"] machine: no command x\n", "0 escaped, 0 failed, 1 not exercised", 0), 1, 0},
		{"nothing", protocol.Answer{Stdout: "seed 7: 0 contained, 0 escaped, 0 failed, 0 not exercised; 0s\n"}, 0, 1},
		{"a line is missing", with("", "1 escaped, 0 failed, 0 not exercised", 1), 0, 1},
		{"a sum is missing", protocol.Answer{Stdout: contained}, 0, 1},
		{"went away", protocol.Answer{Exit: -1, Stdout: contained + sum}, 0, 1},
	} {
		v := judgeEscapes(c.a)
		if len(v.Missing) != c.missing || len(v.Wrong) != c.want {
			t.Errorf("%s: got %+v", c.name, v)
		}
	}
}

func TestLimitsAreHeldOrNot(t *testing.T) {
	for _, c := range []struct {
		name  string
		v     verdict
		wrong bool
	}{
		{"killed in time", judgeMemory(protocol.Answer{Exit: 137, Stdout: "MiB 16\nMiB 144\n"}, limitMiB), false},
		{"too much", judgeMemory(protocol.Answer{Exit: 137, Stdout: "MiB 176\n"}, limitMiB), true},
		{"went off", judgeMemory(protocol.Answer{Stdout: "MiB 640\n"}, bombMiB), true},
		{"few", judgeFork(protocol.Answer{Stdout: "processes 40\n"}), false},
		{"many", judgeFork(protocol.Answer{Stdout: "processes 200\n"}), true},
		{"none", judgeFork(protocol.Answer{Exit: 1}), true},
		{"slow", judgeBurn(protocol.Answer{Stdout: "thousandths 305\n"}), false},
		{"fast", judgeBurn(protocol.Answer{Stdout: "thousandths 990\n"}), true},
		{"left", judgeNothing(protocol.Answer{Stdout: "/sys/fs/cgroup/hermes-wrap-1\n"}), true},
		{"bombs that are none", judgeFree(protocol.Answer{Stdout: "MiB 640\nprocesses 20\nthousandths 990\n"}), true},
	} {
		if (len(c.v.Wrong) > 0) != c.wrong {
			t.Errorf("%s: got %+v", c.name, c.v)
		}
	}
}

func TestNewerLandlockIsNoSurprise(t *testing.T) {
	const want = "exit 0\nok | Landlock | ABI 10 | rules"
	for _, c := range []struct {
		got     string
		unknown bool
		same    bool
	}{
		{"exit 0\nok | Landlock | ABI 12 | rules", true, true},
		{"exit 0\nok | Landlock | ABI 12 | rules", false, false},
		{"exit 0\nok | Landlock | ABI 9 | rules", true, false},
		{"exit 0\nMISSING | Landlock | none", true, false},
	} {
		if same := sameABI(want, c.got, c.unknown) == want; same != c.same {
			t.Errorf("%q: got %v, want %v", c.got, same, c.same)
		}
	}
}

// Answers are led back to their checks by name, so no two may share one.
func TestEveryCheckHasANameOfItsOwn(t *testing.T) {
	names := map[string]bool{}
	for _, b := range boots {
		if names[b.Name] {
			t.Errorf("two boots are called %q", b.Name)
		}
		names[b.Name] = true
		job, checks := b.job()
		if len(job.Steps) != len(checks) {
			t.Errorf("%s: %d steps and %d checks", b.Name, len(job.Steps), len(checks))
		}
	}
}

func TestChangesLeavesWhatThePlainBootHas(t *testing.T) {
	base := golden{"v2/plain/doctor/user": "exit 0\nok | a | works\nok | b | works"}
	got := changes(base, "lsm/plain/doctor/user", "exit 1\nok | a | works\nMISSING | b | none\n  to do: c")
	if want := "exit 1\nMISSING | b | none\n  to do: c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, at := range []string{"v2/plain/doctor/user", "lsm/plain/launch strict/user"} {
		if got := changes(base, at, "exit 0\nok | a | works"); got != "exit 0\nok | a | works" {
			t.Errorf("%s: got %q, want all of it", at, got)
		}
	}
}

func TestModulesGoInAfterWhatTheyNeed(t *testing.T) {
	k := kernel{dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(k.dir, "modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	dep := "d/virtio_pci.ko: d/virtio_ring.ko d/virtio.ko\nd/virtio_ring.ko:\nd/virtio.ko:\nd/virtio_blk.ko: d/virtio_ring.ko d/virtio.ko\nd/other.ko:\n"
	if err := os.WriteFile(filepath.Join(k.dir, "modules", "modules.dep"), []byte(dep), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := k.load(drivers)
	want := []string{"d/virtio.ko", "d/virtio_ring.ko", "d/virtio_pci.ko", "d/virtio_blk.ko"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestArchiveIsOneTheKernelReads(t *testing.T) {
	var a archive
	a.dir("in")
	a.file("in/f", 0o755, []byte("abc"))
	a.link("l", "in/f")
	b := string(a.bytes())
	entries := map[string]string{}
	for len(b) > 0 {
		if !strings.HasPrefix(b, "070701") || len(b) < 110 {
			t.Fatalf("got %.20q, want a header", b)
		}
		field := func(i int) int {
			var n int
			for _, c := range b[6+8*i : 14+8*i] {
				n = n*16 + strings.IndexRune("0123456789abcdef", c)
			}
			return n
		}
		size, length := field(6), field(11)
		name := b[110 : 110+length-1]
		at := (110 + length + 3) / 4 * 4
		entries[name] = b[at : at+size]
		b = b[min((at+size+3)/4*4, len(b)):]
	}
	want := map[string]string{"in": "", "in/f": "abc", "l": "in/f", "TRAILER!!!": ""}
	if !maps.Equal(entries, want) {
		t.Errorf("got %v, want %v", entries, want)
	}
}
