package corpus

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reported says which tests cover what users of comparable tools reported: group
// h, L01 to L52. "use NAME" is one of testdata/everyday/uses.txt.
var reported = map[string][]string{
	// Repositories.
	"L01": {"test/everyday.TestRepositories", "sandbox.TestProtectFollowsGitFiles"},
	"L02": {"test/everyday.TestRepositories", "sandbox.TestProtectFollowsGitFiles"},
	"L03": {"test/everyday.TestRepositories", "use git-existing-workspace", "use git-hook-workspace"},
	"L04": {"test/everyday.TestRepositories", "test/peers.TestGit"},
	"L05": {"test/everyday.TestOverSSH", "test/peers.TestSSH"},
	"L06": {"test/everyday.TestOverSSH"},
	"L07": {"test/everyday.TestLargeClone"},
	"L08": {"test/everyday.TestLargeClone"},
	"L09": {"test/everyday.TestCredentialHelper"},
	"L10": {"test/everyday.TestSigningAgent", "test/everyday.TestRepositories"},
	"L11": {"test/everyday.TestRepositories", "sandbox.TestRootMakesNothingOnTheHost"},
	"L12": {"test/everyday.TestRepositories", "sandbox.TestProtect"},
	// What is left on the host.
	"L13": {"test/everyday.TestRepositories", "sandbox.TestResolve"},
	"L14": {"test/storm.TestInARow", "sandbox.TestRootMakesNothingOnTheHost"},
	"L15": {"test/storm.TestInARow", "test/storm.TestKilled"},
	"L16": {"test/storm.TestAtOnce", "sandbox.TestRootMakesNothingOnTheHost"},
	"L17": {"use dev-files", "use git-basics", "sandbox.TestRootFiles"},
	"L18": {"test/view.TestAbsent", "sandbox.TestRootMakesNothingOnTheHost"},
	"L19": {"test/everyday.TestEngineSocket"},
	"L20": {"policy.TestProjectRefused", "test/everyday.TestEngineSocket"},
	// Builds and packages.
	"L21": {"test/everyday.TestRegistries", "test/profiles.TestPackages"},
	"L22": {"use go-test", "use go-build-run-vet", "test/profiles.TestPackages"},
	"L23": {"use go-test", "use tmp", "use tmp-program"},
	"L24": {"test/clients.TestClients", "sandbox.TestTruststores"},
	"L25": {"test/clients.TestClients"},
	"L26": {"test/everyday.TestRegistries", "test/clients.TestClients", "sandbox.TestJavaTruststoreHoldsEveryCertificate"},
	"L27": {"use java-jar-process", "test/corpus.TestNetwork", "test/storm.TestGhosts"},
	"L28": {"test/everyday.TestRegistries", "sandbox.TestTruststores"},
	"L29": {"use python-executors", "use python-multiprocessing", "use python-shared-memory"},
	"L30": {"use dev-shm"},
	"L31": {"test/everyday.TestPlaywright", "test/profiles.TestBrowser"},
	"L32": {"use python-unix-sockets", "use tmux-detached", "use gpg"},
	// Terminals.
	"L33": {"use screen"},
	"L34": {"use tmux-attach", "use tmux-detached", "test/sessions.TestAttachAndDetach"},
	"L35": {"use fish-job-control", "use bash-job-control", "use zsh-job-control", "use vim-suspend", "use vim-resize"},
	// Long and large.
	"L36": {"test/everyday.TestWebSocket", "test/peers.TestWebSocket"},
	"L37": {"test/everyday.TestWebSocket", "netpolicy/proxy.TestTunnelIdle"},
	"L38": {"test/everyday.TestWebSocket", "test/everyday.TestOverSSH", "test/everyday.TestLargeUpload", "netpolicy/proxy.TestBulk"},
	"L39": {"test/everyday.TestLongStream", "netpolicy/proxy.TestTruncatedUpstream", "netpolicy/proxy.TestModelStreamCut"},
	"L40": {"policy.TestLoadComplete", "policy.TestSchemaAgrees"},
	"L41": {"test/secrets.TestPlaceholderWorks", "netpolicy/proxy.TestNothingLeaves"},
	"L42": {"use loopback-spellings", "use python-udp-ipv6"},
	"L43": {"test/everyday.TestDevServer", "test/publish.TestClients"},
	// Life and end of a run.
	"L44": {"use background-outlives-its-shell", "test/everyday.TestDevServer", "test/storm.TestGhosts"},
	"L45": {"use exit-inner-sample", "use exit-42", "cmd/hermes-wrap/testdata/script/exit_codes.txtar"},
	"L46": {"test/storm.TestScripts", "sandbox.TestTerminalSharedWithAPager", "sandbox.TestTerminalSuspendsAndResumes"},
	"L47": {"use rename-between-directories", "use rename-and-trees"},
	"L48": {"cmd/hermes-wrap/testdata/script/machine_lacks.txtar", "sandbox.TestLandlockFinding", "sandbox.TestPreflightTriesEverything"},
	"L49": {"sandbox.TestNamespaceFindings", "cmd/hermes-wrap/testdata/script/machine_lacks.txtar"},
	"L50": {"test/everyday.TestNoHelperPrograms"},
	"L51": {"test/everyday.TestReadOnlyDirectory", "cmd/hermes-wrap/testdata/script/cwd.txtar"},
	"L52": {"use argv-every-byte", "test/storm.TestArguments"},
}

// reportedNotHere are parts of reports that these tests cannot bring about, or
// that we do otherwise, and why.
var reportedNotHere = map[string]string{
	"L01": "a repository outside of the workspace is not granted by what its .git file says, since the workspace could then open any directory: the policy names it",
	"L19": "no engine runs where the tests do: a server with its interface stands for it, and curl for its client",
	"L22": "cargo is tested without dependencies (use cargo): what Debian 12 has reads no registry over HTTPS without git",
	"L24": "gh is no package of Debian 12; Go's TLS is tested with a client of its own. Ruby and Rust read the same variables and have no test",
	"L26": "Maven fetches a parent and runs no plugin, for those would need a copy of a repository",
	"L27": "Gradle of Debian 12 is too old for its JDK: what is shown is that nothing of the host's loopback is in reach and that daemons end with the run",
	"L28": "uv cannot be installed here; pip is tested, and the variables that uv reads are set",
	"L33": "/run is read-only inside: Debian's screen needs SCREENDIR",
	"L36": "silence is of a second, or with HERMES_EVERYDAY=full of 150, and not of an hour",
	"L38": "kubectl needs a cluster: a WebSocket, which it streams over, and rsync carry as much",
	"L40": "there is no earlier release to upgrade from",
	"L43": "a port that is not published is not hinted at",
	"L47": "between two trees outside of the workspace rename(2) gives EXDEV, as between two file systems, and mv copies: each is a mount of its own",
	"L49": "the kernel of the tests has no AppArmor",
}

func TestEveryReportIsCovered(t *testing.T) {
	uses, err := os.ReadFile(filepath.Join("..", "..", "testdata", "everyday", "uses.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i := range 52 {
		all = append(all, fmt.Sprintf("L%02d", i+1))
	}
	if known := slices.Sorted(maps.Keys(reported)); !slices.Equal(known, all) {
		t.Errorf("got reports %v, want L01 to L52", known)
	}
	for _, id := range all {
		if len(reported[id]) == 0 {
			t.Errorf("%s: got no test, want one", id)
		}
		for _, name := range reported[id] {
			if use, ok := strings.CutPrefix(name, "use "); ok {
				if !strings.Contains(string(uses), "\n=== "+use+"\n") {
					t.Errorf("%s: got no use %q, want one", id, use)
				}
				continue
			}
			if why := missing(t, name); why != "" {
				t.Errorf("%s: %s", id, why)
			}
		}
	}
	for id := range reportedNotHere {
		if !slices.Contains(all, id) {
			t.Errorf("%s: got a reason for a report that the corpus does not have", id)
		}
	}
}
