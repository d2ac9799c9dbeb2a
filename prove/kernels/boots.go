package kernels

import (
	"fmt"

	"github.com/hermes-wrap/hermes-wrap/prove/kernels/protocol"
)

// boot is one start of a kernel: what its command line and its first process
// make of it, and what is tried there.
type boot struct {
	Name string
	// Title says what is different.
	Title  string
	Append string // to the kernel's command line
	Job    protocol.Job
	Cases  []variant
	// Suites are the kernels it is started on; nil: all.
	Suites []string
	// Short are those of the short run; nil: none.
	Short []string
}

// variant is a change to a running guest, which is taken back.
type variant struct {
	Name, Title   string
	Before, After string // of root's
	// Users are who starts things; nil: both.
	Users []string
	// Wants are the checks; nil: doctor and both policies.
	Wants []want
}

// want is one command and what has to come out of it. A name that is also a
// section of the golden file is compared with it.
type want struct {
	Name   string
	Script string
	// Seconds bounds it; zero: enough for a launch.
	Seconds int
	judge   func(protocol.Answer) verdict
}

// launchSeconds is many times what an emulated launch takes, of the guest's own
// time.
const launchSeconds = 60

// bare is one act of the guest's program without a sandbox, wrapped within one.
func bare(act string) string { return "cp -f /in/guest probe && exec ./probe " + act }

func wrapped(policy, act string) string {
	return fmt.Sprintf(`cp /in/*.yaml "$HOME/" && cp -f /in/guest probe && exec "$WRAP" --policy "$HOME/%s.yaml" -- ./probe %s`, policy, act)
}

// at runs a check with the binary at another place.
func at(path string, w want) want {
	w.Script = "WRAP=" + path + "; " + w.Script
	return w
}

// launch runs the probe under a policy. What it says without a sandbox was seen
// before: see twin.
func launch(policy string) want {
	return want{
		Name:   "launch " + policy,
		Script: wrapped(policy, "probe $ABOUT"),
		judge:  judgeLaunch,
	}
}

var (
	doctor = want{Name: "doctor", Script: `"$WRAP" doctor; code=$?; echo "` + jsonFollows + `"; "$WRAP" doctor --json; exit $code`, judge: judgeDoctor}
	twin   = want{Name: "twin", Script: bare("probe $ABOUT"), judge: judgeTwin}
	fetch  = want{Name: "fetch", Script: wrapped("strict", "fetch"), judge: judgeFetch}
	// label is the profile that the launcher itself runs under.
	label = want{
		Name: "label", judge: judgeLabel,
		Script: `/usr/bin/hermes-wrap --policy "$HOME/strict.yaml" -- sleep 20 & sleep 5; cat /proc/$!/attr/current; kill $!; wait`,
	}
	usual = []want{doctor, launch("strict")}
	both  = []string{protocol.User, protocol.Root}
	// tiers also tries the policy that does without namespaces.
	tiers = []want{doctor, launch("strict"), launch("lenient")}
)

// olderNewest stand for the others where a boot is about a setting and not
// about what kernels have.
var olderNewest = []string{"bookworm", "sid"}

// boots are all there are; the first is what the others are compared with.
var boots = []boot{
	{
		Name: "v2", Title: "cgroup v2 with a subtree of the user's", Short: shortSuites,
		Job: protocol.Job{Cgroups: "delegated"},
		Cases: []variant{
			{Name: "plain", Wants: []want{twin, doctor, launch("strict"), fetch}},
			{Name: "free", Users: []string{protocol.User}, Wants: []want{free}},
			{Name: "limits", Wants: group},
			{
				Name: "no user namespaces for users", Before: "sysctl -qw kernel.unprivileged_userns_clone=0", After: "sysctl -qw kernel.unprivileged_userns_clone=1",
				Wants: []want{doctor, launch("strict")},
			},
			{
				Name: "no user namespaces", Before: "sysctl -qw user.max_user_namespaces=0", After: "sysctl -qw user.max_user_namespaces=7000",
				Wants: tiers,
			},
		},
	},
	{
		Name: "escapes", Title: "cases of the escape table", Short: []string{"sid"},
		Suites: olderNewest,
		Job:    protocol.Job{Cgroups: "delegated"},
		Cases:  []variant{{Name: "table", Users: []string{protocol.Root}, Wants: []want{escapes(protocol.User), escapes(protocol.Root)}}},
	},
	{
		Name: "settings", Title: "settings of an administrator's, one after another",
		Suites: olderNewest,
		Job:    protocol.Job{Cgroups: "delegated"},
		Cases: []variant{
			{Name: "hidepid", Before: "mount -o remount,hidepid=2 /proc", After: "mount -o remount,hidepid=0 /proc", Wants: []want{launch("strict")}},
			{Name: "yama 1", Before: "sysctl -qw kernel.yama.ptrace_scope=1", Users: []string{protocol.User}, Wants: []want{launch("strict")}},
			{Name: "yama 2", Before: "sysctl -qw kernel.yama.ptrace_scope=2", Users: []string{protocol.User}, Wants: []want{launch("strict")}},
			{
				Name: "yama 2, no user namespaces", Before: "sysctl -qw user.max_user_namespaces=0", After: "sysctl -qw user.max_user_namespaces=7000",
				Users: []string{protocol.User}, Wants: []want{launch("lenient")},
			},
			// Nobody gets down from 3 again.
			{Name: "yama 3", Before: "sysctl -qw kernel.yama.ptrace_scope=3"},
			{Name: "yama 3, no user namespaces", Before: "sysctl -qw user.max_user_namespaces=0", Wants: []want{launch("lenient")}},
		},
	},
	{
		Name: "none", Title: "no cgroups",
		Suites: olderNewest,
		Job:    protocol.Job{Cgroups: "none"},
		Cases:  []variant{{Name: "plain", Wants: tiers}},
	},
	{
		Name: "old", Title: "a kernel without Landlock, and a policy that permits that",
		Suites: []string{"bullseye"},
		Job:    protocol.Job{Cgroups: "delegated"},
		Cases:  []variant{{Name: "plain", Wants: []want{launch("landless")}}},
	},
	{
		Name: "v1", Title: "cgroup v1",
		Job:    protocol.Job{Cgroups: "v1"},
		Suites: []string{"bullseye", "bookworm"},
		Cases: []variant{
			{Name: "plain"},
			{Name: "limits", Users: []string{protocol.Root}, Wants: group},
			{Name: "limits without a group", Users: []string{protocol.User}, Wants: standIn},
			{Name: "no devices controller", Before: "umount /sys/fs/cgroup/devices"},
		},
	},
	{
		Name: "modules", Title: "no IPv6, no nf_tables, no overlays", Append: "ipv6.disable=1 module_blacklist=nf_tables,overlay",
		Suites: olderNewest,
		Job:    protocol.Job{Cgroups: "delegated"},
		Cases:  []variant{{Name: "plain", Wants: []want{doctor, launch("strict"), fetch}}},
	},
	{
		Name: "lsm", Title: "Landlock not switched on", Append: "lsm=lockdown,yama,apparmor",
		Suites: olderNewest,
		Job:    protocol.Job{Cgroups: "delegated"},
		Cases:  []variant{{Name: "plain", Wants: append([]want{launch("landless")}, tiers...)}},
	},
	{
		Name: "minimal", Title: "an initramfs with a static shell: no service manager, no /etc, no libraries",
		Suites: olderNewest,
		Job:    protocol.Job{Cgroups: "v2", Minimal: true},
		Cases:  []variant{{Name: "plain", Wants: tiers}},
	},
	{
		Name: "systemd", Title: "systemd with a manager of the user's",
		Suites: olderNewest,
		Job: protocol.Job{Systemd: true, Setup: []string{
			`n=0; while ! [ -S /run/user/1000/bus ]; do sleep 0.2; n=$((n + 1)); [ $n -lt 250 ] || { systemctl --failed; exit 1; }; done`,
		}},
		Cases: []variant{{Name: "plain"}, {Name: "limits", Wants: group}},
	},
	{
		Name: "apparmor", Title: "AppArmor: the packaged profile, and one that keeps user namespaces away",
		Suites: []string{"sid"},
		Job: protocol.Job{Cgroups: "delegated", Setup: []string{
			"cp /in/hermes-wrap /usr/bin/; mkdir -p /opt/other; cp /in/hermes-wrap /opt/other/; apparmor_parser -r /in/apparmor.profile",
			// The distribution that refuses user namespaces by a setting of its own
			// does so by a profile like this, which it puts on whatever has none.
			`printf '%s\n' 'abi <abi/4.0>,' 'profile other /opt/other/hermes-wrap {' 'capability, network, mount, umount, pivot_root, signal, ptrace, unix,' ` +
				`'/** rwlkm,' '/** pix,' '}' | apparmor_parser -r`,
		}},
		Cases: []variant{
			{Name: "the packaged profile", Wants: []want{at("/usr/bin/hermes-wrap", doctor), at("/usr/bin/hermes-wrap", launch("strict")), label}},
			{Name: "a profile without userns", Users: []string{protocol.User}, Wants: []want{
				at("/opt/other/hermes-wrap", doctor), at("/opt/other/hermes-wrap", launch("strict")), at("/opt/other/hermes-wrap", launch("lenient")),
			}},
		},
	},
}

// job turns the variants into what a guest is told. The names of the steps lead
// back from an answer to its check.
func (b boot) job() (protocol.Job, map[string]step) {
	j := b.Job
	checks := map[string]step{}
	root := func(v variant, what, script string) {
		if script != "" {
			name := v.Name + "/" + what
			j.Steps = append(j.Steps, protocol.Ask{Name: name, User: protocol.Root, Script: script, Seconds: launchSeconds})
			checks[name+"/"+protocol.Root] = step{variant: v, want: want{Name: what, judge: judgeRoot}}
		}
	}
	for _, v := range b.Cases {
		root(v, "before", v.Before)
		wants, users := v.Wants, v.Users
		if wants == nil {
			wants = usual
		}
		if users == nil {
			users = both
		}
		for _, w := range wants {
			for _, u := range users {
				name := v.Name + "/" + w.Name
				j.Steps = append(j.Steps, protocol.Ask{Name: name, User: u, Script: w.Script, Seconds: max(w.Seconds, launchSeconds)})
				checks[name+"/"+u] = step{variant: v, want: w}
			}
		}
		root(v, "after", v.After)
	}
	return j, checks
}

// step is one check of one variant.
type step struct {
	variant variant
	want    want
}
