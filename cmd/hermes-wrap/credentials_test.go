package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

func writeSecret(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func fileCredential(path string) policy.Credential {
	return policy.Credential{Source: policy.CredentialSource{File: policy.Path{Text: path, Abs: path}}, Attach: "bearer"}
}

func TestKeeper(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	writeSecret(t, path, "ghp_FirstFirstFirstFirst\n")
	p := policy.Policy{Credentials: map[string]policy.Credential{"gh": fileCredential(path)}}
	k := newKeeper(nil)
	read := func(again ...string) credential.Values {
		t.Helper()
		v, err := k.read(context.Background(), p, again...)
		if err != nil {
			t.Fatal(err)
		}
		return v["gh"]
	}
	first := read()
	writeSecret(t, path, "ghp_Second-is-longer-than-that\n")
	if got := read(); got != first {
		t.Error("got another secret although nobody asked, want the one that is known")
	}
	second := read("gh")
	if second.Secret != "ghp_Second-is-longer-than-that" || second.Placeholder != first.Placeholder {
		t.Error("got the old secret or another placeholder, want the new secret and the same placeholder")
	}
	// A source that fails leaves what was read.
	writeSecret(t, path, "short")
	if _, err := k.read(context.Background(), p, "gh"); err == nil {
		t.Error("got no error, want one about the short secret")
	}
	if got := read(); got != second {
		t.Error("got something else than before the failure")
	}
}

func TestKeeperReportsEveryMistake(t *testing.T) {
	k := newKeeper([]string{"B=T0psecret\nX", "C=T0psecret-fine"})
	p := policy.Policy{Credentials: map[string]policy.Credential{
		"a": {Source: policy.CredentialSource{Env: "A"}, Attach: "bearer"},
		"b": {Source: policy.CredentialSource{Env: "B"}, Attach: "bearer"},
		"c": {Source: policy.CredentialSource{Env: "C"}, Attach: "sigv4"},
		"d": {Source: policy.CredentialSource{Env: "C"}, Attach: "bearer"},
	}}
	values, err := k.read(context.Background(), p)
	if err == nil || values != nil {
		t.Fatalf("got %v, want three mistakes", err)
	}
	for _, name := range []string{"credentials.a", "credentials.b", "credentials.c"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("got %q, want a mistake at %s", err, name)
		}
	}
	if strings.Contains(err.Error(), "T0p") || strings.Contains(err.Error(), "credentials.d") {
		t.Errorf("got %q, want no secret and nothing about d", err)
	}
}

func TestWithPlaceholders(t *testing.T) {
	p := policy.Policy{Credentials: map[string]policy.Credential{
		"gh":  {Attach: "bearer", Expose: policy.CredentialExposure{Env: "GITHUB_TOKEN"}},
		"aws": {Attach: "sigv4", Expose: policy.CredentialExposure{Env: "AWS"}},
		"s3":  {Attach: "sigv4", Expose: policy.CredentialExposure{Env: "S3_ACCESS_KEY_ID"}},
		"x":   {Attach: "bearer"},
	}}
	got := withPlaceholders([]string{"A=1", "GITHUB_TOKEN=real", "AWS_SECRET_ACCESS_KEY=real"}, p, map[string]credential.Values{
		"gh": {Placeholder: "p-gh"}, "aws": {Placeholder: "id:key:session"}, "s3": {Placeholder: "id3:key3"}, "x": {Placeholder: "p-x"},
	})
	want := []string{
		"A=1", "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=key", "AWS_SESSION_TOKEN=session", "GITHUB_TOKEN=p-gh",
		"S3_ACCESS_KEY_ID=id3", "S3_SECRET_ACCESS_KEY=key3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSecretWatch(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	writeSecret(t, file, "one")
	writeSecret(t, other, "one")
	interval := policy.Credential{Source: policy.CredentialSource{Command: []string{"x"}}, Refresh: policy.Duration(time.Minute)}
	p := policy.Policy{Credentials: map[string]policy.Credential{
		"file": fileCredential(file), "other": fileCredential(other), "gone": fileCredential(filepath.Join(dir, "gone")), "interval": interval,
		"env": {Source: policy.CredentialSource{Env: "X"}},
	}}
	w := secretWatch{files: map[watched]os.FileInfo{}, read: map[string]time.Time{}}
	now := time.Now()
	step := func(what string, after time.Duration, want ...string) {
		t.Helper()
		now = now.Add(after)
		got := w.due(p, now)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	step("first look", 0)
	step("nothing changed", time.Second)
	writeSecret(t, file, "two")
	step("replaced", time.Second, "file")
	step("once", time.Second)
	if err := os.WriteFile(other, []byte("three"), 0o600); err != nil {
		t.Fatal(err)
	}
	step("written in place", time.Second, "other")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	step("removed", time.Second)
	writeSecret(t, file, "four")
	step("there again", time.Second, "file")
	step("interval", time.Minute, "interval")
	writeSecret(t, filepath.Join(dir, "gone"), "five")
	step("there for the first time", time.Second, "gone")
}
