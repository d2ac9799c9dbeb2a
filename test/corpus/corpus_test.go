package corpus

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// covered says which tests cover which case of the corpus: groups c (network,
// layers 3 and 4) and d (protocols, credentials, inference). A test is named by
// its package's directory; a script by its file.
var covered = map[string][]string{
	// Names.
	"C01": {"test/hostile.TestHostile", "netpolicy/proxy.TestDNSOverTCP", "test/corpus.TestRefusedAtOnce"},
	"C02": {"netpolicy/proxy.TestNames"},
	"C03": {"netpolicy/proxy.TestDeniedHost", "netpolicy/proxy.TestExplicitProxyRaw", "netpolicy/proxy.TestSOCKS"},
	"C05": {"test/corpus.TestNetwork", "test/hostile.TestHostile", "test/view.TestSets"},
	"C07": {"netpolicy/proxy.TestResolverAnswers", "netpolicy/proxy.TestAddressesAreJudged"},
	// Kinds of sockets.
	"C08": {"sandbox.TestFilterSocketArguments", "sandbox.TestFilterInKernel", "test/hostile.TestHostile"},
	"C09": {"test/corpus.TestRefusedAtOnce", "test/corpus.TestNetwork", "netpolicy/proxy.TestAltSvcIsDropped", "netpolicy/proxy.TestOtherAnswers"},
	"C10": {"test/hostile.TestHostile"},
	"C11": {"sandbox.TestFilterInKernel", "sandbox.TestFilterSocketArguments", "test/hostile.TestHostile"},
	"C13": {"test/weak.TestPortOfTheProxyElsewhere", "test/corpus.TestNetwork"},
	"C14": {"test/clients.TestClients", "test/hostile.TestHostile"},
	"C16": {"test/corpus.TestRefusedAtOnce", "test/corpus.TestNetwork", "netpolicy.TestParseHost"},
	// Spellings and classes of addresses.
	"C17": {"netpolicy.TestClassify", "netpolicy.TestParseHost", "netpolicy/proxy.TestAddressesAreJudged"},
	"C18": {"netpolicy.TestParseHost", "netpolicy/proxy.TestOtherAnswers"},
	"C19": {"netpolicy.TestClassify", "test/corpus.TestNetwork"},
	"C20": {"test/corpus.TestNetwork", "netpolicy/proxy.TestNames", "netpolicy.TestAddress"},
	"C21": {"netpolicy.TestClassify", "netpolicy/proxy.TestAddressesAreJudged", "test/hostile.TestHostile"},
	"C22": {"netpolicy.TestClassify", "netpolicy.TestNameDoesNotGrantAddress"},
	"C24": {"netpolicy/proxy.TestRebinding", "netpolicy/proxy.TestResolverChangesItsMind"},
	"C25": {"netpolicy/proxy.TestAddressesAreJudged"},
	// Ways around and into the proxy.
	"C27": {"test/corpus.TestNetwork", "test/corpus.TestRefusedAtOnce"},
	"C28": {"netpolicy/proxy.TestProxyDoesNotDialItself"},
	"C29": {"test/corpus.TestNothingListensOutside", "test/weak.TestProxyIsClosedToOthers"},
	"C30": {"test/corpus.TestNetwork", "netpolicy/proxy.TestForwardedFields"},
	"C31": {"netpolicy/proxy.TestSOCKS", "netpolicy.TestParseHost"},
	"C33": {"netpolicy/proxy.TestOtherPorts", "netpolicy/proxy.TestDeniedConnectionIsReset"},
	"C34": {"netpolicy.TestParseHostPort", "netpolicy/proxy.TestOtherPorts"},
	"C35": {"test/corpus.TestNothingListensOutside", "cmd/hermes-wrap/testdata/script/publish.txtar"},
	"C37": {"test/corpus.TestNetwork", "test/weak.TestAttacks"},
	"C38": {"test/view.TestSets", "sandbox.TestRootFiles"},
	"C41": {"test/peers.TestNothingAfterTheEnd"},
	"C42": {"netpolicy/proxy.TestAddressesAreJudged"},
	"C43": {"netpolicy/proxy.TestAddressesAreJudged", "netpolicy.TestNameDoesNotGrantAddress", "netpolicy/proxy.TestPrivateRange"},

	// Which host it is.
	"D01": {"netpolicy/proxy.TestPass", "netpolicy/proxy.TestInspectWrongServerName"},
	"D02": {"netpolicy/proxy.TestStrictFront"},
	"D03": {"netpolicy/proxy.TestPipelinedRequestsAreJudgedEach", "netpolicy/proxy.TestHTTP2StreamsAreJudgedEach"},
	"D04": {"netpolicy/proxy.TestStrictHTTP2"},
	"D06": {"netpolicy/proxy.TestStrictHTTP2"},
	"D07": {"netpolicy/proxy.TestStrictHTTP2"},
	"D08": {"netpolicy/proxy.TestStrictFront"},
	"D09": {"netpolicy/proxy.TestDeniedHost", "netpolicy/proxy.TestInspect"},
	"D10": {"netpolicy/proxy.TestOddServerNames", "netpolicy/proxy.TestPass", "netpolicy/proxy.TestClientHelloGarbage"},
	"D13": {"netpolicy/proxy.TestDeniedConnectionIsReset", "netpolicy/proxy.TestSOCKS"},
	"D14": {"netpolicy.TestHostGlob", "netpolicy.TestHosts"},
	"D16": {"netpolicy.TestParseHost", "netpolicy.TestDenyHoldsForEverySpelling"},
	"D17": {"netpolicy.TestParseHost", "netpolicy.FuzzParseHost"},
	"D18": {"netpolicy/proxy.TestStrictFront", "netpolicy.TestParseHost"},
	"D19": {"netpolicy.TestParseHost", "netpolicy/proxy.TestStrictFront"},
	"D20": {"netpolicy.TestParseHost", "netpolicy/proxy.TestOtherPorts"},
	"D21": {"netpolicy/proxy.TestStrictFront", "netpolicy/proxy.TestExplicitProxyRaw"},
	// Which path, query and method it is.
	"D22": {"netpolicy.TestCanonicalPath", "netpolicy.TestDenyHoldsForEverySpelling", "netpolicy/proxy.TestStrictFront"},
	"D23": {"netpolicy.TestCanonicalPath", "netpolicy/proxy.TestStrictFront"},
	"D25": {"netpolicy.TestCanonicalPath", "netpolicy.TestDenyHoldsForEverySpelling"},
	"D26": {"netpolicy.TestCanonicalPath", "netpolicy/proxy.TestEncodedSlashGoesOutAsWritten"},
	"D28": {"netpolicy.TestCanonicalPath", "netpolicy.TestSplitTarget", "netpolicy.TestDenyHoldsForEverySpelling"},
	"D29": {"netpolicy.TestCanonicalPath", "netpolicy.TestDenyHoldsForEverySpelling"},
	"D30": {"netpolicy.TestCanonicalPath", "netpolicy.FuzzCanonicalPath"},
	"D32": {"netpolicy.TestParseQueryKeepsDuplicates", "netpolicy.TestRequest"},
	"D34": {"netpolicy/proxy.TestStrictFront", "netpolicy/proxy.TestMisleadingFieldsAreDropped"},
	"D36": {"netpolicy/proxy.TestEchoIsScrubbed", "netpolicy/proxy.TestStrictFront"},
	"D39": {"netpolicy/proxy.TestAttachEachWay", "netpolicy/proxy.TestTrailersOfACredential"},
	// Where a message begins and ends.
	"D40": {"netpolicy/proxy.TestStrictFront", "netpolicy/proxy.TestDifferential"},
	"D41": {"netpolicy/proxy.TestStrictFront", "netpolicy/proxy.TestDifferential"},
	"D42": {"netpolicy/proxy.TestStrictFront", "netpolicy/proxy.TestDifferential"},
	"D43": {"netpolicy/proxy.TestStrictFront", "netpolicy/proxy.FuzzHead"},
	"D44": {"netpolicy/proxy.TestStrictFront"},
	"D45": {"netpolicy/proxy.TestStrictFront", "netpolicy/proxy.FuzzChunked"},
	"D47": {"netpolicy/proxy.TestPipelinedRequestsAreJudgedEach"},
	"D48": {"netpolicy/proxy.TestStrictFront"},
	"D49": {"netpolicy/proxy.TestExpectContinue", "netpolicy/proxy.TestEarlyAnswer"},
	"D50": {"netpolicy/proxy.TestMalformedUpstream", "netpolicy/proxy.TestTruncatedUpstream"},
	"D51": {"netpolicy/proxy.TestStrictFront", "netpolicy/proxy.TestHTTP2Floods"},
	"D52": {"netpolicy/proxy.TestSlowClients", "netpolicy/proxy.TestConnectionCap", "netpolicy/proxy.TestTunnelIdle"},
	"D53": {"netpolicy/proxy.TestBulk", "netpolicy/proxy.TestUnreadAnswerIsNotHeld"},
	"D54": {"netpolicy/proxy.TestMessageBodies", "netpolicy/proxy.TestMessagesHeld"},
	// Other protocols on the same connection.
	"D55": {"netpolicy/proxy.TestH2COfferIsIgnored", "netpolicy/proxy.TestStrictFront"},
	"D56": {"netpolicy/proxy.TestWebSocketHandshake", "netpolicy/proxy.TestWebSocketMessagesAreJudged"},
	"D57": {"netpolicy/proxy.TestWebSocketClientAbuse", "netpolicy/proxy.TestWebSocketServerAbuse"},
	"D58": {"netpolicy/proxy.TestMalformedUpstream", "netpolicy/proxy.TestWebSocketAnswer"},
	"D59": {"netpolicy/proxy.TestHTTP2Floods"},
	"D60": {"netpolicy/proxy.TestStrictHTTP2"},
	"D61": {"netpolicy/proxy.TestStreamAndTrailers", "netpolicy/proxy.TestGRPC", "netpolicy/proxy.TestMCPStream"},
	// Credentials.
	"D62": {"netpolicy/proxy.TestRedirectIsNotFollowed"},
	"D63": {"netpolicy/proxy.TestRedirectTakesNothingAlong"},
	"D64": {"netpolicy/proxy.TestNothingLeaves"},
	"D65": {"netpolicy/proxy.TestEncodingsLeaving", "netpolicy/proxy.TestMessageInPieces", "netpolicy/proxy.TestWebSocketMessagesAreSearched"},
	"D66": {"netpolicy/proxy.TestNeverOverPlainHTTP"},
	"D69": {"secret.TestReadRefuses", "netpolicy/credential.TestNewRefuses"},
	"D70": {"audit.TestHideCoversEveryField", "netpolicy/credential.TestNothingPrints", "cmd/hermes-wrap/testdata/script/audit.txtar"},
	"D71": {"netpolicy/proxy.TestGitPush", "netpolicy.TestGit"},
	"D72": {"netpolicy.TestCredentialSelection", "netpolicy.TestClaimKeepsOneCredential"},
	"D74": {"netpolicy/proxy.TestForwardedFields", "netpolicy/proxy.TestNothingOfOursGoesOut"},
	"D75": {"netpolicy/proxy.TestOldTLS"},
	"D76": {"netpolicy/proxy.TestUpstreamCertificate", "test/peers.TestEnvironmentDoesNotChangeVerification"},
	"D77": {"netpolicy/proxy.TestClientCertificates", "netpolicy/proxy.TestPassKeepsTLSEndToEnd"},
	"D78": {"test/corpus.TestAuthorityKeyIsOutOfReach"},
	"D79": {"test/corpus.TestAuthorityEndsWithTheRun"},
	// What is inside of bodies.
	"D82": {"netpolicy/proxy.TestMessageBodies", "netpolicy/proxy.TestMCPCalls"},
	"D84": {"netpolicy/proxy.TestMessageBodies"},
	"D85": {"netpolicy/proxy.TestJSONRPC", "netpolicy/proxy.TestMCPCalls"},
	"D86": {"netpolicy/proxy.TestMCPCalls", "netpolicy/proxy.TestMCPAnswers"},
	"D88": {"netpolicy/proxy.TestGraphQL", "netpolicy/proxy.TestGraphQLInURL"},
	"D89": {"netpolicy/inference.TestModelSmuggling"},
	"D90": {"netpolicy/inference.TestProviderFeatures"},
	"D91": {"netpolicy/inference.TestEndpoints", "netpolicy/proxy.TestModelRefusals"},
	"D92": {"netpolicy/inference.TestHeaders"},
	"D93": {"netpolicy/proxy.TestModelStreamCut", "netpolicy/proxy.TestMCPStream"},
	"D94": {"netpolicy/proxy.TestBytesBudgetCutsStreams", "netpolicy/proxy.TestMCPStreamTooLarge"},
	"D97": {"netpolicy/proxy.TestPanicIsContained", "netpolicy/proxy.FuzzHead", "netpolicy/proxy.TestClientHelloGarbage"},
}

// notHere are parts of cases that these tests cannot bring about, and why.
var notHere = map[string]string{
	"C05": "no machine of the tests runs nscd, sssd or avahi: it is shown that no socket of the host is visible, whichever daemon's it is",
	"C08": "an echo of ICMP to another machine needs one",
	"C16": "multicast to a link needs a second machine on it; its sockets end in the sandbox's own loopback",
	"D53": "the transfers are of 64 MiB in each direction and not of gigabytes; what is held does not grow with them",
	"D76": "revoked roots: the host's list of roots is taken as it is, and Go looks up no revocation",
}

// cases are those of the two groups. Numbers that are left out were merged into
// others when the corpus was made.
var cases = strings.Fields(`
	C01 C02 C03 C05 C07 C08 C09 C10 C11 C13 C14 C16 C17 C18 C19 C20 C21 C22 C24 C25 C27 C28 C29 C30 C31 C33 C34 C35 C37 C38 C41 C42 C43
	D01 D02 D03 D04 D06 D07 D08 D09 D10 D13 D14 D16 D17 D18 D19 D20 D21 D22 D23 D25 D26 D28 D29 D30 D32 D34 D36 D39
	D40 D41 D42 D43 D44 D45 D47 D48 D49 D50 D51 D52 D53 D54 D55 D56 D57 D58 D59 D60 D61 D62 D63 D64 D65 D66 D69 D70
	D71 D72 D74 D75 D76 D77 D78 D79 D82 D84 D85 D86 D88 D89 D90 D91 D92 D93 D94 D97`)

// TestEveryCaseIsCovered holds the list: every case has a test, and every test
// that is named is there and asserts something.
func TestEveryCaseIsCovered(t *testing.T) {
	for _, id := range cases {
		if len(covered[id]) == 0 {
			t.Errorf("%s: got no test, want one", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(covered)) {
		if !slices.Contains(cases, id) {
			t.Errorf("%s: got a case that the corpus does not have", id)
		}
		for _, name := range covered[id] {
			if why := missing(t, name); why != "" {
				t.Errorf("%s: %s", id, why)
			}
		}
	}
	for id := range notHere {
		if !slices.Contains(cases, id) {
			t.Errorf("%s: got a reason for a case that the corpus does not have", id)
		}
	}
}

// missing says why a test or a script of the list does not count, or "".
func missing(t *testing.T, name string) string {
	t.Helper()
	if strings.HasSuffix(name, ".txtar") {
		if _, err := os.Stat(filepath.Join("..", "..", name)); err != nil {
			return err.Error()
		}
		return ""
	}
	dir, function, _ := cutLast(name, ".")
	if !functions(t, dir)[function] {
		return fmt.Sprintf("got no %s in %s that can fail, want one", function, dir)
	}
	return ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

var parsed = map[string]map[string]bool{} //nolint:gochecknoglobals // a directory is parsed once

// functions gives the tests of a directory that take what a test is given and
// do something with it.
func functions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	if known, ok := parsed[dir]; ok {
		return known
	}
	found := map[string]bool{}
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Recv == nil && len(fn.Type.Params.List) == 1 && usesItsParameter(fn) {
				found[fn.Name.Name] = true
			}
		}
	}
	parsed[dir] = found
	return found
}

func usesItsParameter(fn *ast.FuncDecl) (uses bool) {
	names := fn.Type.Params.List[0].Names
	if len(names) != 1 || fn.Body == nil {
		return false
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		uses = uses || ok && id.Name == names[0].Name
		return !uses
	})
	return uses
}
