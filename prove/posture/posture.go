// Package posture compares everything that a confined process can tell of itself
// with what its caller has, for every built-in profile: some fields may shrink,
// none may grow.
package posture

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hermes-wrap/hermes-wrap/profiles"
	"github.com/hermes-wrap/hermes-wrap/prove/report"
)

//go:embed c/posture.c
var probeSource []byte

// weakProfile is the built-in policy that consents to the tier without
// namespaces; it is run a second time where they are refused.
const weakProfile = "hermes-in-container"

// secrets are variables that a caller often has, and that no profile passes on
// as they are.
var secrets = []string{"SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DBUS_SESSION_BUS_ADDRESS", "LD_PRELOAD_PATH", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"} //nolint:gochecknoglobals // a table

// Run is the part of the proof.
func Run(ctx context.Context, o report.Options) (report.Part, error) {
	p := report.Part{
		Name: "posture", Title: "What a confined process has", Began: time.Now(),
		Intro: "A program printed what the kernel says of it, bare and inside, under every built-in profile: capabilities, all that prctl(2) gets, limits, namespaces, descriptors, " +
			"variables, mounts, and what of /proc, /proc/sys and /sys can be seen and written. A field may shrink, and what differs from the caller is held in a golden file " +
			"(prove/posture/testdata). A field that grows fails the proof whatever the golden file says.",
	}
	accounts := []string{o.User}
	if o.User != "" && os.Getuid() == 0 {
		accounts = append(accounts, "")
	}
	for _, name := range accounts {
		if err := one(ctx, o, name, &p); err != nil {
			return p, err
		}
	}
	p.Took = time.Since(p.Began)
	return p, nil
}

// one goes through the profiles as one account.
func one(ctx context.Context, o report.Options, name string, p *report.Part) error {
	s, err := newScene(ctx, o, name)
	if s != nil {
		defer s.close()
	}
	if err != nil {
		return err
	}
	table := report.Table{Title: "As " + s.words(), Columns: append([]string{"Profile"}, groups...)}
	for _, profile := range s.profiles() {
		c, err := s.posture(ctx, profile)
		if err != nil {
			return err
		}
		row := []string{profile}
		for _, g := range groups {
			row = append(row, c.tallies[g].String())
		}
		table.Rows = append(table.Rows, row)
		golden, err := os.ReadFile(s.golden(o.Root, profile))
		if err != nil {
			return err
		}
		for _, what := range append(c.grown, c.fits(string(golden))...) {
			p.Failed = append(p.Failed, fmt.Sprintf("%s as %s: %s", profile, s.words(), what))
		}
	}
	p.Tables = append(p.Tables, table)
	o.Say("posture: %d profiles as %s", len(table.Rows), s.words())
	return nil
}

// scene is an account with a home, a workspace and the probe in it.
type scene struct {
	account
	bin, dir string
	cred     *syscall.Credential
	env      []string
}

// planted are files that profiles grant, hide or protect. A name that ends with
// "/" is a directory.
var planted = []string{ //nolint:gochecknoglobals // a table
	".hermes/.env", ".hermes/auth.json", ".hermes/config.yaml", ".hermes/SOUL.md", ".hermes/state.db", ".hermes/sessions/one.json", ".hermes/hooks/hook.py",
	".hermes/plugins/p/plugin.py", ".hermes/skills/s/run", ".hermes/mcp-tokens/token.json", ".hermes/cron/jobs.json", ".hermes/logs/log", ".hermes/memories/MEMORY.md",
	".claude/settings.json", ".codex/config.toml", ".gemini/settings.json", ".config/opencode/opencode.json", ".local/share/opencode/", ".ssh/id_ed25519",
	"ws/README.md", "ws/.git/config", "ws/.git/hooks/pre-commit", "ws/.git/HEAD", "ws/.envrc",
}

func newScene(ctx context.Context, o report.Options, name string) (*scene, error) {
	who, err := user.Current()
	if name != "" {
		who, err = user.Lookup(name)
	}
	if err != nil {
		return nil, fmt.Errorf("look up the account: %w", err)
	}
	s := &scene{bin: o.Bin, account: account{secrets: secrets}}
	s.uid, _ = strconv.Atoi(who.Uid)
	s.gid, _ = strconv.Atoi(who.Gid)
	if name != "" && os.Getuid() == 0 {
		s.cred = &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.gid)}
	}
	if s.dir, err = os.MkdirTemp(who.HomeDir, "prove-posture-"); err != nil {
		return nil, err
	}
	s.home, s.ws = filepath.Join(s.dir, "home"), filepath.Join(s.dir, "home/ws")
	run := filepath.Join(s.dir, "run")
	s.env = []string{
		"HOME=" + s.home, "PATH=/usr/local/bin:/usr/bin:/bin", "XDG_RUNTIME_DIR=" + run, "USER=" + who.Username, "LOGNAME=" + who.Username,
		"LANG=C.UTF-8", "TERM=dumb", "TZ=UTC", "SHELL=/bin/sh",
	}
	for _, v := range secrets {
		s.env = append(s.env, v+"=sk-or-v1-0123456789abcdef0123456789abcdef")
	}
	err = errors.Join(os.MkdirAll(run, 0o700), os.MkdirAll(s.ws, 0o700))
	for _, file := range planted {
		path := filepath.Join(s.home, file)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700))
		if strings.HasSuffix(file, "/") {
			err = errors.Join(err, os.MkdirAll(path, 0o700))
			continue
		}
		err = errors.Join(err, os.WriteFile(path, []byte("{}\n"), 0o600))
	}
	refuse := "#!/bin/sh\necho 0 > /proc/sys/user/max_user_namespaces || exit 99\nexec \"$@\"\n"
	source := filepath.Join(s.dir, "posture.c")
	if err = errors.Join(err, os.WriteFile(source, probeSource, 0o644), os.WriteFile(s.refuse(), []byte(refuse), 0o755)); err != nil {
		return s, err
	}
	if out, err := exec.CommandContext(ctx, "cc", "-O2", "-static", "-o", s.probe(), source).CombinedOutput(); err != nil {
		return s, fmt.Errorf("compile the probe: %w\n%s", err, out)
	}
	return s, s.own()
}

func (s *scene) own() error {
	if s.cred == nil {
		return nil
	}
	return filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, s.uid, s.gid))
	})
}

func (s *scene) close()         { _ = os.RemoveAll(s.dir) }
func (s *scene) probe() string  { return filepath.Join(s.ws, "posture") }
func (s *scene) refuse() string { return filepath.Join(s.dir, "refuse.sh") }

func (s *scene) words() string {
	if s.uid == 0 {
		return "root"
	}
	return "an ordinary user"
}

// profiles are all that are built in, and the tier without namespaces.
func (s *scene) profiles() []string { return append(profiles.Names(), "weak") }

// golden is the file of a profile: host user 0 has more to be kept from.
func (s *scene) golden(root, profile string) string {
	if s.uid == 0 {
		profile += "-root"
	}
	return filepath.Join(root, "prove/posture/testdata", profile+".golden")
}

// runLimit is how long one launch may take.
const runLimit = time.Minute

// posture runs the probe bare and inside, both from one caller that has descriptors
// open, a signal blocked and another ignored.
func (s *scene) posture(ctx context.Context, profile string) (*comparison, error) {
	a := s.account
	begin := []string{"env", "--block-signal=USR1", "--ignore-signal=USR2"}
	policy := profile
	if profile == "weak" {
		a.weak, policy = true, weakProfile
		begin = append(begin, "unshare", "-U", "--map-current-user", "--keep-caps", "/bin/sh", s.refuse())
	}
	const both = `"$0" && echo ===== && exec "$@"`
	begin = append(begin, "sh", "-c", both, s.probe(), s.bin, "--quiet", "--no-supervise", "--policy", policy, "--", s.probe())
	text, err := s.run(ctx, begin...)
	if err != nil {
		return nil, fmt.Errorf("posture under %s: %w", profile, err)
	}
	outside, inside, ok := strings.Cut(text, "=====\n")
	if !ok {
		return nil, fmt.Errorf("posture under %s: the probe printed %d bytes", profile, len(text))
	}
	return compare(a, outside, inside), nil
}

func (s *scene) run(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return "", err
	}
	defer func() { _ = null.Close() }()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.ws, s.env, &out, &errs
	cmd.ExtraFiles = []*os.File{null, null, null}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred, Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", argv, err, errs.String())
	}
	return out.String(), nil
}
