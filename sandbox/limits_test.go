package sandbox

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

func allLimits() policy.Policy {
	return policy.Policy{Limits: policy.Limits{
		Memory: 1 << 30, Pids: 64, CPU: 1.5, OpenFiles: 512, FileSize: 1 << 20,
	}}
}

func controllers(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

func TestPlanLimitsMechanism(t *testing.T) {
	cases := []struct {
		name  string
		facts LimitFacts
		want  map[string]string
		lacks policy.Layer // what stops it without may_degrade
	}{
		{
			name:  "root on v1",
			facts: LimitFacts{Root: true, HostRoot: true, Cgroup: LayoutHybrid, Controllers: controllers("memory", "pids", "cpu")},
			want:  map[string]string{"memory": "cgroup v1 memory", "pids": "cgroup v1 pids (and 16 for init)", "cpu": "cgroup v1 cpu"},
		},
		{
			name:  "root on v2 with systemd",
			facts: LimitFacts{Root: true, HostRoot: true, Cgroup: LayoutV2, SystemScope: true, Controllers: controllers("memory", "pids", "cpu")},
			want:  map[string]string{"memory": "systemd scope (cgroup v2 memory)", "cpu": "systemd scope (cgroup v2 cpu)"},
		},
		{
			name:  "root in a container with a read-only cgroup tree",
			facts: LimitFacts{Root: true, HostRoot: true, Cgroup: LayoutV2, NprocPerUserns: true},
			want:  map[string]string{"pids": MechanismNone},
			lacks: policy.LayerPids,
		},
		{
			name:  "user with a systemd user manager",
			facts: LimitFacts{Cgroup: LayoutV2, UserScope: true, NprocPerUserns: true, Controllers: controllers("memory", "pids", "cpu")},
			want:  map[string]string{"memory": "systemd user scope (cgroup v2 memory)", "cpu": "systemd user scope (cgroup v2 cpu)"},
		},
		{
			name:  "user manager without the cpu controller",
			facts: LimitFacts{Cgroup: LayoutV2, UserScope: true, NprocPerUserns: true, Controllers: controllers("memory", "pids")},
			want:  map[string]string{"memory": "systemd user scope (cgroup v2 memory)", "cpu": MechanismNone},
			lacks: policy.LayerCPU,
		},
		{
			name:  "user with a delegated directory",
			facts: LimitFacts{Cgroup: LayoutV2, Delegated: "/sys/fs/cgroup/a", Controllers: controllers("memory", "pids", "cpu")},
			want:  map[string]string{"memory": "cgroup v2 memory", "pids": "cgroup v2 pids (and 16 for init)"},
		},
		{
			name:  "user with nothing",
			facts: LimitFacts{Cgroup: LayoutHybrid, NprocPerUserns: true},
			want: map[string]string{
				"memory":     "watcher (sums the tree every 25ms to 250ms, kills it)",
				"pids":       "RLIMIT_NPROC in the agent's own user namespace",
				"cpu":        MechanismNone,
				"open_files": "RLIMIT_NOFILE of each process",
				"file_size":  "RLIMIT_FSIZE of each process",
			},
			lacks: policy.LayerCPU,
		},
		{
			name:  "user on an old kernel",
			facts: LimitFacts{Cgroup: LayoutNone},
			want:  map[string]string{"pids": MechanismNone},
			lacks: policy.LayerPids,
		},
		{
			name: "lower hard limit of the caller",
			facts: LimitFacts{
				Cgroup: LayoutNone, NprocPerUserns: true,
				Hard: map[int]uint64{unix.RLIMIT_NOFILE: 100, unix.RLIMIT_FSIZE: math.MaxUint64},
			},
			want:  map[string]string{"open_files": "RLIMIT_NOFILE (the caller's own 100) of each process"},
			lacks: policy.LayerCPU,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := allLimits()
			_, err := PlanLimits(p, c.facts)
			var lack *LackError
			if errors.As(err, &lack); (lack == nil) != (c.lacks == "") || (lack != nil && lack.Layer != c.lacks) {
				t.Errorf("without may_degrade: got %v, want layer %q", err, c.lacks)
			}
			p.Require.MayDegrade = []policy.Layer{policy.LayerMemory, policy.LayerPids, policy.LayerCPU}
			lp, err := PlanLimits(p, c.facts)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			none := 0
			for _, l := range lp.Limits {
				got[l.Name] = l.Mechanism
				if l.Mechanism == MechanismNone {
					none++
				}
			}
			for name, want := range c.want {
				if got[name] != want {
					t.Errorf("%s: got %q, want %q", name, got[name], want)
				}
			}
			if len(lp.Degraded) != none {
				t.Errorf("degraded: got %v, want %d entries", lp.Degraded, none)
			}
		})
	}
}

func TestPlanLimitsZeroPolicyUsesNothing(t *testing.T) {
	lp, err := PlanLimits(policy.Policy{}, LimitFacts{})
	if err != nil {
		t.Fatal(err)
	}
	cg := lp.Cgroup("id")
	if len(lp.Limits) != 0 || lp.Watch != 0 || cg.Systemd || cg.Resources == nil || cg.Memory != 0 || cg.PidsLimit != nil {
		t.Errorf("got %+v with cgroup %+v, want no limit", lp, cg)
	}
	want := []Rlimit{
		{Name: "RLIMIT_SIGPENDING", Resource: unix.RLIMIT_SIGPENDING, Soft: maxPending, Hard: maxPending},
		{Name: "RLIMIT_CORE", Resource: unix.RLIMIT_CORE},
	}
	if r := lp.Rlimits(); !slices.Equal(r, want) {
		t.Errorf("got rlimits %v, want %v", r, want)
	}
}

func TestPlanLimitsCgroupConfig(t *testing.T) {
	f := LimitFacts{Root: true, HostRoot: true, Cgroup: LayoutV1, SwapAccounting: true, Controllers: controllers("memory", "pids", "cpu")}
	lp, err := PlanLimits(allLimits(), f)
	if err != nil {
		t.Fatal(err)
	}
	cg := lp.Cgroup("x1")
	if cg.Memory != 1<<30 || cg.MemorySwap != 1<<30 || *cg.PidsLimit != 64+initTasks || cg.CpuQuota != 150_000 || cg.CpuPeriod != cpuPeriod {
		t.Errorf("got %+v, want the limits of the policy", cg.Resources)
	}
	if !strings.HasPrefix(cg.Name, groupPrefix) || cg.Parent != "" || cg.Path != "" || cg.Rootless {
		t.Errorf("got name %q parent %q path %q rootless %v", cg.Name, cg.Parent, cg.Path, cg.Rootless)
	}
}

func TestLackHintNeverWeakensFirst(t *testing.T) {
	for _, f := range []LimitFacts{{}, {Root: true, HostRoot: true}, {NprocPerUserns: true}} {
		_, err := PlanLimits(allLimits(), f)
		var lack *LackError
		if !errors.As(err, &lack) {
			t.Fatalf("got %v, want a *LackError", err)
		}
		if lack.Hint == "" || lack.Needed == "" || lack.Found == "" || strings.Contains(lack.Hint, "degrade") {
			t.Errorf("got %+v", lack)
		}
	}
}

// A hint that cannot help where it is said is worse than none.
func TestLackHintFitsTheMachine(t *testing.T) {
	for _, c := range []struct {
		facts       LimitFacts
		want, never string
	}{
		{LimitFacts{Cgroup: LayoutNone}, "mount the cgroup", "session"},
		{LimitFacts{Cgroup: LayoutNone, Root: true}, "mount the cgroup", "root"},
		{LimitFacts{Cgroup: LayoutV2, Root: true}, "subtree_control", "session"},
		{LimitFacts{Cgroup: LayoutV2}, "Delegate=cpu", "root"},
	} {
		_, err := PlanLimits(policy.Policy{Limits: policy.Limits{CPU: 1}}, c.facts)
		var lack *LackError
		if !errors.As(err, &lack) || !strings.Contains(lack.Hint, c.want) || strings.Contains(lack.Hint, c.never) {
			t.Errorf("%+v: got %v with %+v, want a hint with %q", c.facts, err, lack, c.want)
		}
	}
}

func TestParseCgroups(t *testing.T) {
	got := parseCgroups(strings.NewReader("4:memory:/a:b\n2:cpu,cpuacct:/c\n0::/user.slice/x.scope\ngarbage\n"))
	want := map[string]string{"memory": "/a:b", "cpu": "/c", "cpuacct": "/c", "": "/user.slice/x.scope"}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%q: got %q, want %q", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSliceOf(t *testing.T) {
	for group, want := range map[string]string{
		"/": "", "/a/b": "",
		"/user.slice/user-0.slice/session-1.scope": "user-0.slice",
		"/system.slice/x.service/sub":              "system.slice",
	} {
		if got := sliceOf(group); got != want {
			t.Errorf("%s: got %q, want %q", group, got, want)
		}
	}
}

func TestKernelAtLeast(t *testing.T) {
	for release, want := range map[string]bool{"5.13.9": false, "5.14.0-427.el9": true, "6.1.0": true, "4.18": false, "": false} {
		if got := kernelAtLeast(release, 5, 14); got != want {
			t.Errorf("%q: got %v, want %v", release, got, want)
		}
	}
}

func TestProbeLimitsIsCheapAndConsistent(t *testing.T) {
	f := ProbeLimits()
	if f.Cgroup == "" || f.Kernel == "" || f.Controllers == nil {
		t.Errorf("got %+v, want every fact", f)
	}
	if f.Cgroup == LayoutNone && len(f.Controllers) > 0 {
		t.Errorf("got controllers %v without cgroups", f.Controllers)
	}
}

func BenchmarkProbeLimits(b *testing.B) {
	for b.Loop() {
		ProbeLimits()
	}
}
