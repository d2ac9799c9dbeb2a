package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// The test binary is the executable that Preflight starts again.
func init() { ProbeStage(DoorHooks()) }

// RequireUserNamespaces skips where this user cannot make them.
func RequireUserNamespaces(t *testing.T) {
	t.Helper()
	cmd := exec.Command("unshare", "-Ur", "true")
	if out, err := cmd.CombinedOutput(); err != nil {
		if os.Getenv("HERMES_MUST_WORK") == "1" {
			t.Fatalf("needs user namespaces: %s", out)
		}
		t.Skipf("needs user namespaces: %s", out)
	}
}

func TestPreflightTriesEverything(t *testing.T) {
	RequireUserNamespaces(t)
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	fs := Preflight(t.Context())
	for _, f := range fs[:len(namespaceSteps)] {
		if !f.OK && !f.Info {
			t.Errorf("%s: got %q, want it to work where unshare(1) does", f.Feature, f.Found)
		}
	}
	for _, f := range fs {
		if f.Untried {
			t.Errorf("%s: got untried, want an attempt", f.Feature)
		}
		if !f.OK && !f.Info && f.Remedy == "" {
			t.Errorf("%s: got %q without a remedy", f.Feature, f.Found)
		}
		if f.NeededBy == "" && !f.Info {
			t.Errorf("%s: got nothing that needs it", f.Feature)
		}
	}
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("mounts: got a change, want none (%v)", err)
	}
}

func TestProbeStageTypedByHandDoesNothing(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{ProbeName}
	cmd.Stdin = strings.NewReader("user:[1]\n")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitProbe || len(out) > 0 {
		t.Errorf("got %q, %v, want exit %d and no step", out, err, exitProbe)
	}
}

func TestNamespaceFindings(t *testing.T) {
	refused := func(step string, no unix.Errno) probeResult { return newProbeResult(step, fmt.Errorf("try: %w", no)) }
	cases := []struct {
		name    string
		results []probeResult
		machine machine
		feature string // the first that is missing
		remedy  string
	}{
		{
			"AppArmor refuses the maps",
			[]probeResult{{Step: probeClone}, refused(probeMap, unix.EACCES)},
			machine{apparmor: true},
			"id map", "AppArmor profile",
		},
		{
			"AppArmor refuses loopback",
			[]probeResult{{Step: probeClone}, {Step: probeMap}, refused(probeLoopback, unix.EPERM)},
			machine{apparmor: true},
			"loopback inside", "AppArmor profile",
		},
		{
			"default filter of docker",
			[]probeResult{refused(probeClone, unix.EPERM)},
			machine{container: "docker"},
			"user namespace", "seccomp profile",
		},
		{"no user namespaces", []probeResult{refused(probeClone, unix.ENOSPC)}, machine{}, "user namespace", "max_user_namespaces"},
		{"masked proc", []probeResult{
			{Step: probeClone},
			{Step: probeMap},
			{Step: probeLoopback},
			{Step: probeMount},
			refused(probeProc, unix.EPERM),
		}, machine{container: "docker"}, "fresh /proc", "procMount"},
		{"no user namespaces for a container", []probeResult{refused(probeClone, unix.ENOSPC)}, machine{container: "docker"}, "user namespace", "administrator of the machine"},
		{"Debian's switch", []probeResult{refused(probeClone, unix.EPERM)}, machine{noUsersUserns: true}, "user namespace", "kernel.unprivileged_userns_clone is 0"},
		{"Debian's switch, for root", []probeResult{
			{Step: probeClone},
			{Step: probeMap},
			{Step: probeLoopback},
			{Step: probeMount},
			{Step: probeProc},
			refused(probeNested, unix.EPERM),
			{Step: probeLook},
			{Step: probePivot},
		}, machine{noUsersUserns: true, root: true}, "nested user namespace", "kernel.unprivileged_userns_clone is 0"},
		{"Debian's switch, in a container", []probeResult{refused(probeClone, unix.EPERM)}, machine{noUsersUserns: true, container: "docker"}, "user namespace", "kernel.unprivileged_userns_clone is 0"},
		{"refused to an ordinary user", []probeResult{refused(probeClone, unix.EPERM)}, machine{}, "user namespace", "as root"},
		{"refused to root", []probeResult{refused(probeClone, unix.EPERM)}, machine{root: true}, "user namespace", "administrator"},
		{"initramfs", []probeResult{
			{Step: probeClone},
			{Step: probeMap},
			{Step: probeLoopback},
			{Step: probeMount},
			{Step: probeProc},
			{Step: probeNested},
			{Step: probeLook},
			refused(probePivot, unix.EINVAL),
		}, machine{}, "another root", "initramfs"},
		{"a step that does not come back", []probeResult{{Step: probeClone}, {Step: probeMap}, {Step: probeLoopback}}, machine{}, "nf_tables TPROXY", "nft_tproxy"},
		{"nobody may look into processes", []probeResult{
			{Step: probeClone},
			{Step: probeMap},
			{Step: probeLoopback},
			{Step: probeMount},
			{Step: probeProc},
			{Step: probeNested},
			refused(probeLook, unix.EPERM),
			{Step: probePivot},
		}, machine{noPtrace: true}, "descriptors of our own processes", "ptrace_scope"},
		{"a kernel without mount_setattr", []probeResult{
			{Step: probeClone},
			{Step: probeMap},
			{Step: probeLoopback},
			{Step: probeTproxy},
			refused(probeMount, unix.ENOSYS),
		}, machine{}, "mounts inside", "5.12"},
		{"old kernel", []probeResult{refused(probeClone, unix.EINVAL)}, machine{}, "user namespace", "CONFIG_USER_NS"},
	}
	for _, c := range cases {
		bad := Findings(namespaceFindings(c.results, c.machine)).Missing()
		if len(bad) != 1 || bad[0].Feature != c.feature || !strings.Contains(bad[0].Remedy, c.remedy) {
			t.Errorf("%s: got %+v, want %q missing with %q", c.name, bad, c.feature, c.remedy)
		}
		for _, f := range bad {
			if c.machine.container != "" && (strings.Contains(f.Remedy, "root") || !strings.Contains(f.Remedy, "hermes-in-container")) {
				t.Errorf("%s: got remedy %q, want one for a container", c.name, f.Remedy)
			}
			if c.machine.root && strings.Contains(f.Remedy, "as root") {
				t.Errorf("%s: got remedy %q for root", c.name, f.Remedy)
			}
			for _, never := range []string{"disable", "apparmor_restrict", "may_degrade", "sysctl"} {
				if strings.Contains(f.Remedy, never) {
					t.Errorf("%s: got remedy %q, want no %q", c.name, f.Remedy, never)
				}
			}
		}
	}
}

func TestCgroupFinding(t *testing.T) {
	for name, c := range map[string]struct {
		m      machine
		remedy string
	}{
		"v2":                 {machine{cgroup: LayoutV2}, ""},
		"v1":                 {machine{cgroup: LayoutV1}, ""},
		"v1 without devices": {machine{cgroup: LayoutV1, noDevices: true}, "devices controller"},
		"none":               {machine{cgroup: LayoutNone}, "mount the cgroup file system"},
	} {
		f := c.m.cgroupFinding()
		if f.OK != (c.remedy == "") || !strings.Contains(f.Remedy, c.remedy) || (!f.OK && len(Findings{f}.Missing()) != 1) {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}

func TestLandlockSince(t *testing.T) {
	for abi, want := range map[int]string{0: "5.13", 1: "5.13", 2: "5.19", 6: "6.12", 7: "6.15", 99: "6.15"} {
		if got := landlockSince(abi); got != want {
			t.Errorf("%d: got %s, want %s", abi, got, want)
		}
	}
}

func TestConfinedByAppArmor(t *testing.T) {
	for label, want := range map[string]bool{
		"": false, "unconfined": false, "hermes-wrap (unconfined)": false, "other (complain)": false, "other (enforce)": true, "a//b (enforce)": true,
	} {
		if got := confinedByAppArmor(label); got != want {
			t.Errorf("%q: got %v, want %v", label, got, want)
		}
	}
}

func TestMasksProc(t *testing.T) {
	const plain = "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n26 25 0:5 / /proc rw - proc proc rw\n"
	for mounts, want := range map[string]bool{
		"": false, plain: false,
		plain + "99 26 0:5 /null /proc/kcore rw - devtmpfs udev rw\n": true,
		plain + "99 25 0:5 / /mnt/proc/kcore rw - devtmpfs udev rw\n": false,
	} {
		if got := masksProc(mounts); got != want {
			t.Errorf("%q: got %v, want %v", mounts, got, want)
		}
	}
}

func TestLandlockFinding(t *testing.T) {
	cases := []struct {
		name string
		abi  int
		err  error
		ok   bool
		want string
	}{
		{"new", 7, nil, true, "ABI 7"},
		{"too old", 1, nil, false, "ABI 1"},
		{"not built", 0, unix.ENOSYS, false, "not built"},
		{"not booted", 0, unix.EOPNOTSUPP, false, "not switched on at boot"},
		{"refused", 0, unix.EPERM, false, "not permitted"},
	}
	for _, c := range cases {
		f := landlockFinding(c.abi, c.err)
		if f.OK != c.ok || !strings.Contains(f.Found, c.want) || (f.Remedy == "") != c.ok {
			t.Errorf("%s: got %+v", c.name, f)
		}
	}
}

func TestExplain(t *testing.T) {
	lack := &LackError{Layer: policy.LayerCPU, Feature: "a", Needed: "b", Found: "c", Hint: "d"}
	a, b, c, d := Explain(t.Context(), fmt.Errorf("limits: %w", lack))
	if a+b+c+d != "abcd" {
		t.Errorf("got %q %q %q %q", a, b, c, d)
	}
	if a, _, _, _ := Explain(t.Context(), nil); a != "" {
		t.Errorf("got %q for no error", a)
	}
}

func TestFindingsTable(t *testing.T) {
	fs := Findings{
		{Feature: "x", Found: "works", OK: true, NeededBy: "all"},
		{Feature: "y", Found: "refused", Needed: "z", Remedy: "do it", Layer: policy.LayerProc},
		{Feature: "k", Found: "6.1", OK: true, Info: true},
	}
	var b bytes.Buffer
	if err := fs.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ok       x        works", "MISSING  y", "info     k", "y: needed z\n  to do: do it\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("got\n%s\nwant %q", b.String(), want)
		}
	}
	var back Findings
	raw, err := json.Marshal(fs)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &back); err != nil || len(back) != 3 || back[1] != fs[1] {
		t.Errorf("got %+v, %v, want the same back", back, err)
	}
}
