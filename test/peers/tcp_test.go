package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hermes-wrap/hermes-wrap/test/harness"
	"github.com/hermes-wrap/hermes-wrap/test/wraptest"
)

const limit = time.Minute

// mustRun runs a command of the account that has to succeed.
func mustRun(t *testing.T, w wraptest.World, dir string, argv ...string) string {
	t.Helper()
	got := wraptest.Run(t, w.Bare(dir, argv...), limit)
	if got.Exit != 0 {
		t.Fatalf("%q: exit %d\n%s\n%s", argv, got.Exit, got.Out, got.Err)
	}
	return got.Out
}

// tcpPolicy opens one name and port as TCP; other names at the same address are
// there, but no rule is about them.
func tcpPolicy(name string, port int, read string) string {
	return fmt.Sprintf(`version: 1
workspace: {path: ., access: write}
filesystem: {read: [%s]}
network:
  hosts: {%[2]s.test: [127.0.0.1], other.test: [127.0.0.1]}
  private: [{cidr: 127.0.0.1, ports: [%[3]d], reason: the server of this test}]
  rules: [{name: %[2]s, host: %[2]s.test, protocol: tcp, ports: [%[3]d]}]
`, read, name, port)
}

// TestSSH runs OpenSSH's client against OpenSSH's server through a tcp rule.
func TestSSH(t *testing.T) {
	w := wraptest.New(t)
	sshd := w.Find("sshd")
	harness.Require(t, sshd != "", "sshd (package openssh-server)")
	w.RequireCommands(t, []string{"ssh", "ssh-keygen"})
	work, server, port := w.Dir(t, "work"), w.Dir(t, "server"), wraptest.FreePort(t)
	for _, key := range []string{filepath.Join(server, "host"), filepath.Join(work, "id")} {
		mustRun(t, w, work, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	}
	public := func(name string) string {
		b, err := os.ReadFile(name + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	w.Write(t, filepath.Join(server, "authorized"), public(filepath.Join(work, "id"))+"\n")
	w.Write(t, filepath.Join(server, "config"), fmt.Sprintf(`Port %d
ListenAddress 127.0.0.1
HostKey %[2]s/host
AuthorizedKeysFile %[2]s/authorized
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
`, port, server))
	wraptest.Serve(t, w.Bare(server, sshd, "-D", "-e", "-f", filepath.Join(server, "config")), port)
	known := filepath.Join(work, "known")
	var hosts strings.Builder
	for _, name := range []string{"127.0.0.1", "ssh.test", "other.test"} {
		fmt.Fprintf(&hosts, "[%s]:%d %s\n", name, port, public(filepath.Join(server, "host")))
	}
	w.Write(t, known, hosts.String())
	argv := func(host string) []string {
		return []string{
			"ssh", "-F", "none", "-i", filepath.Join(work, "id"), "-o", "UserKnownHostsFile=" + known, "-o", "BatchMode=yes", "-o", "ConnectTimeout=10",
			"-p", fmt.Sprint(port), w.User.Username + "@" + host, "echo it is $((40+2))",
		}
	}
	if got := mustRun(t, w, work, argv("127.0.0.1")...); got != "it is 42\n" {
		t.Fatalf("bare: got %q, want %q", got, "it is 42\n")
	}
	policy := w.PolicyFile(t, "ssh", tcpPolicy("ssh", port, "/etc/ssh?"))
	if got := wraptest.Run(t, w.Wrap(work, policy, argv("ssh.test")...), limit); got.Out != "it is 42\n" || got.Exit != 0 {
		t.Errorf("inside: got %q, exit %d, %q, want %q", got.Out, got.Exit, got.Err, "it is 42\n")
	}
	for _, host := range []string{"other.test", "127.0.0.1"} {
		got := wraptest.Run(t, w.Wrap(work, policy, argv(host)...), limit)
		if got.Exit != 255 || got.Out != "" {
			t.Errorf("%s inside: got %q, exit %d, want a failed connection and 255", host, got.Out, got.Exit)
		}
	}
}

// TestPostgreSQL runs psql against a PostgreSQL server through a tcp rule. TLS
// begins inside the protocol and is verified by the client, end to end: the
// proxy reads none of it.
func TestPostgreSQL(t *testing.T) {
	w := wraptest.New(t)
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	harness.Require(t, len(bins) > 0, "a PostgreSQL server (package postgresql)")
	w.RequireCommands(t, []string{"psql", "openssl"})
	bin := filepath.Dir(bins[len(bins)-1])
	work, server, port := w.Dir(t, "work"), w.Dir(t, "server"), wraptest.FreePort(t)
	data := filepath.Join(server, "data")
	w.Write(t, filepath.Join(server, "password"), "only-for-this-test\n")
	mustRun(t, w, server, filepath.Join(bin, "initdb"), "-D", data, "-U", "agent", "--pwfile", filepath.Join(server, "password"),
		"--auth=scram-sha-256", "--no-sync", "--no-locale", "--encoding=UTF8")
	root := filepath.Join(work, "root.crt")
	mustRun(t, w, server, "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=db.test", "-addext", "subjectAltName=DNS:db.test,DNS:localhost",
		"-keyout", filepath.Join(data, "server.key"), "-out", root)
	mustRun(t, w, server, "cp", root, filepath.Join(data, "server.crt"))
	mustRun(t, w, server, "chmod", "600", filepath.Join(data, "server.key"))
	wraptest.Serve(t, w.Bare(server, filepath.Join(bin, "postgres"), "-D", data, "-p", fmt.Sprint(port), "-k", "", "-h", "127.0.0.1", "-c", "ssl=on", "-c", "fsync=off"), port)
	argv := func(host string) []string {
		return []string{
			"psql", "-XAtq", fmt.Sprintf("host=%s port=%d user=agent password=only-for-this-test dbname=postgres sslmode=verify-full sslrootcert=%s connect_timeout=10", host, port, root),
			"-c", "select 6*7, ssl from pg_stat_ssl where pid = pg_backend_pid()",
		}
	}
	if got := mustRun(t, w, work, argv("localhost")...); got != "42|t\n" {
		t.Fatalf("bare: got %q, want %q", got, "42|t\n")
	}
	policy := w.PolicyFile(t, "db", tcpPolicy("db", port, "/etc/postgresql-common?"))
	if got := wraptest.Run(t, w.Wrap(work, policy, argv("db.test")...), limit); got.Out != "42|t\n" || got.Exit != 0 {
		t.Errorf("inside: got %q, exit %d, %q, want %q", got.Out, got.Exit, got.Err, "42|t\n")
	}
	if got := wraptest.Run(t, w.Wrap(work, policy, argv("other.test")...), limit); got.Exit != 2 || got.Out != "" {
		t.Errorf("other.test inside: got %q, exit %d, want a failed connection and 2", got.Out, got.Exit)
	}
}
