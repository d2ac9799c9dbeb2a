package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// The services of git's smart HTTP.
const (
	gitUpload  = "git-upload-pack"
	gitReceive = "git-receive-pack"
)

// gitService reads from a request which service it is for. advertised tells that
// it only asks what there is.
func gitService(r *netpolicy.Request) (service string, advertised, ok bool) {
	path, end := "", r.Path[strings.LastIndexByte(r.Path, '/')+1:]
	switch {
	case end == "refs" && r.Method == http.MethodGet && len(r.Query) == 1 && len(r.Query["service"]) == 1:
		path, end, advertised = r.Path, r.Query["service"][0], true
	case r.Method == http.MethodPost && len(r.Query) == 0:
	default:
		return "", false, false
	}
	known := end == gitUpload || end == gitReceive
	return end, advertised, known && (!advertised || strings.HasSuffix(path, "/info/refs"))
}

// git judges fetches by repository, and pushes by repository and refs.
func (fl *flow) git() *refusal {
	service, advertised, ok := gitService(&fl.judged)
	request := fl.decision.Claim.Target()
	if !ok || (service == gitReceive) != (request.Op == "push") {
		return forbidden(fl.f.host, "git: this is not a request of smart HTTP")
	}
	if refused := fl.withoutOverride(); refused != nil {
		return refused
	}
	fl.operation(request.Op + " " + request.Repo)
	if advertised {
		if refused := fl.withoutBody(); refused != nil {
			return refused
		}
		return fl.judgeGit(request)
	}
	kind, err := mediaType(fl.out.Header)
	if err != nil || kind != "application/x-"+service+"-request" {
		return forbidden(fl.f.host, "git: the content is not a request for "+service)
	}
	if request.Op == "fetch" {
		return fl.judgeGit(request)
	}
	return fl.gitPush(request)
}

func (fl *flow) judgeGit(r netpolicy.GitRequest) *refusal {
	d := fl.decision.Claim.Git(r)
	if d.Verdict != netpolicy.Allow {
		return denied(fl.f.host, d)
	}
	return fl.accept(d)
}

// gitPush reads the commands that come before the pack. The pack itself is
// passed on as it comes, however large it is.
func (fl *flow) gitPush(r netpolicy.GitRequest) *refusal {
	coding, err := oneCoding(fl.out.Header["Content-Encoding"])
	if err != nil {
		return forbidden(fl.f.host, "git: "+err.Error())
	}
	if fl.due != nil {
		fl.due(time.Now().Add(fl.s.limits.Message))
	}
	body := fl.out.Body
	var plain io.Reader = body
	if coding != "" {
		if plain, err = unpack(coding, body); err != nil {
			return fl.unread(err)
		}
	}
	if !fl.hold(maxPushCommands) {
		return tooMany(fl.f.host, "bytes of messages")
	}
	in := bufio.NewReader(plain)
	commands, raw, err := readPushCommands(in)
	if fl.due != nil {
		fl.due(time.Time{})
	}
	fl.msg.pushed = reportFor(commands)
	if err != nil {
		return fl.badPush(err)
	}
	fl.drop(maxPushCommands - int64(len(raw))) // what stays is what goes out
	for _, c := range commands {
		r.Refs = append(r.Refs, c.ref)
	}
	fl.operation("push " + r.Repo + " " + strings.Join(r.Refs, " "))
	if refused := fl.judgeGit(r); refused != nil {
		return refused
	}
	if len(commands) == 0 {
		// What git asks with before a large push, to see whether it may.
		if _, err := in.ReadByte(); err != io.EOF {
			return forbidden(fl.f.host, "git: bytes after a push of nothing")
		}
	}
	if coding != "" {
		fl.out.ContentLength = -1
	}
	for _, name := range aboutBytes {
		delete(fl.out.Header, name)
	}
	fl.out.Trailer = nil
	fl.out.Body = &joined{Reader: io.MultiReader(bytes.NewReader(raw), in), Closer: body}
	return nil
}

func (fl *flow) badPush(err error) *refusal {
	var p pushError
	if errors.As(err, &p) {
		return forbidden(fl.f.host, "git: "+string(p))
	}
	return fl.unread(err)
}

// joined is a body put together from what was read and what comes.
type joined struct {
	io.Reader
	io.Closer
}
