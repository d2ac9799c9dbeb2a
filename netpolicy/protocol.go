package netpolicy

import (
	"net/url"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// protocolInference marks the rules that stand for routes to models.
const protocolInference policy.Protocol = "inference"

// toolsCall is the one method by which tools are called.
const toolsCall = "tools/call"

// The operations of git.
const (
	opFetch = "fetch"
	opPush  = "push"
)

var operationKinds = []string{"query", "mutation", "subscription"}

// claims tells whether the request is what the rule's protocol looks like to
// the most lenient server. Whether it is well-formed is judged later: what is
// recognised here can be allowed by no http rule.
func (c *rule) claims(r *Request) bool {
	switch c.protocol {
	case protocolInference:
		return true
	case policy.ProtocolWebSocket:
		return r.WebSocket && c.touchesPaths(r)
	case policy.ProtocolGRPC:
		return !r.WebSocket && isGRPC(r.Header)
	case policy.ProtocolGit:
		return !r.WebSocket && (isGit(r.Path) || r.split != "" && isGit(r.split))
	default:
		return !r.WebSocket && c.touchesPaths(r)
	}
}

func (c *rule) touchesPaths(r *Request) bool {
	return len(c.paths) == 0 || touchPath(c.paths, c.loosePaths, r)
}

// isAt tells whether the request's path is where the rule's protocol is spoken,
// to the letter.
func (c *rule) isAt(r *Request) bool {
	return r.split == "" && (len(c.paths) == 0 || matchPath(c.paths, r.Path))
}

func matchPath(globs []pathGlob, path string) bool {
	for _, g := range globs {
		if g.match(path) {
			return true
		}
	}
	return false
}

// touchPath compares with every reading of the request's path.
func touchPath(globs, loose []pathGlob, r *Request) bool {
	for i := range globs {
		if globs[i].match(r.Path) || loose[i].matchLoose(r.Path) {
			return true
		}
		if r.split != "" && (globs[i].match(r.split) || loose[i].matchLoose(r.split)) {
			return true
		}
	}
	return false
}

// isGRPC recognises the content types of gRPC and gRPC-Web.
func isGRPC(header map[string][]string) bool {
	const prefix = "application/grpc"
	for _, value := range header["Content-Type"] {
		for part := range strings.SplitSeq(value, ",") {
			if part = strings.TrimSpace(part); len(part) >= len(prefix) && strings.EqualFold(part[:len(prefix)], prefix) {
				return true
			}
		}
	}
	return false
}

// grpcCall reads service and method from a path.
func grpcCall(path string) (method string, ok bool) {
	service, method, ok := strings.Cut(path[1:], "/")
	if !ok || service == "" || method == "" || strings.ContainsAny(path, "%;") || strings.Contains(method, "/") {
		return "", false
	}
	return path[1:], true
}

// The ends of the paths of smart HTTP, see gitprotocol-http(5).
const (
	endRefs    = "/info/refs"
	endUpload  = "/git-upload-pack"
	endReceive = "/git-receive-pack"
)

// isGit recognises the paths of smart HTTP as a lenient server would read them.
func isGit(path string) bool {
	for _, end := range [...]string{endRefs, endUpload, endReceive} {
		if strings.HasSuffix(path, end) {
			return true
		}
	}
	if last := path[len(path)-1]; last != '/' && last != '.' && !hasTails(path) && !hasFoldedEnd(path) {
		return false
	}
	var stems strings.Builder
	for at := 1; ; {
		stem, after, ok := nextStem(path, at)
		if !ok {
			return hasFoldedEnd(stems.String())
		}
		stems.WriteByte('/')
		stems.WriteString(stem)
		at = after
	}
}

// hasTails tells whether some segment may end in something that servers drop.
func hasTails(path string) bool {
	return strings.IndexByte(path, ';') >= 0 || strings.Contains(path, "./") ||
		strings.IndexByte(path, '%') >= 0 && (strings.Contains(path, "%3B") || strings.Contains(path, "%20/") || strings.HasSuffix(path, "%20"))
}

func hasFoldedEnd(path string) bool {
	for _, end := range [...]string{endRefs, endUpload, endReceive} {
		if n := len(path) - len(end); n >= 0 && strings.EqualFold(path[n:], end) {
			return true
		}
	}
	return false
}

// gitRequest reads operation and repository from the head. At the advertisement
// before a push, and at the push itself, the refs are not known.
func gitRequest(r *Request) (g GitRequest, ok bool) {
	path, service := "", ""
	switch {
	case r.split != "":
		return GitRequest{}, false
	case strings.HasSuffix(r.Path, endRefs) && r.Method == "GET":
		if len(r.Query["service"]) != 1 || len(r.Query) != 1 {
			return GitRequest{}, false
		}
		path, service = strings.TrimSuffix(r.Path, endRefs), "/"+r.Query["service"][0]
	case r.Method != "POST" || len(r.Query) > 0:
		return GitRequest{}, false
	case strings.HasSuffix(r.Path, endUpload):
		path, service = strings.TrimSuffix(r.Path, endUpload), endUpload
	case strings.HasSuffix(r.Path, endReceive):
		path, service = strings.TrimSuffix(r.Path, endReceive), endReceive
	}
	switch service {
	case endUpload:
		g.Op = opFetch
	case endReceive:
		g.Op = opPush
	default:
		return GitRequest{}, false
	}
	repo, err := url.PathUnescape(strings.TrimPrefix(path, "/"))
	g.Repo = strings.TrimSuffix(repo, ".git")
	return g, err == nil && g.Repo != "" && !strings.ContainsRune(g.Repo, ';')
}
