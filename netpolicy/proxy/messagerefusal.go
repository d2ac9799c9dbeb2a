package proxy

import (
	"net/http"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// messages is what a flow knows of the messages in its request.
type messages struct {
	held     int64            // bytes that the flow keeps in memory
	accepted bool             // one was allowed
	callID   strictjson.Value // of the one call; invalid for a batch
	batch    bool
	pushed   *report // of a push whose commands were read
}

// smallPush is the longest body that git sends in one piece. Only such a push
// hears an answer that comes before its end and is no error of HTTP.
const smallPush = 1 << 20

// dress puts a refusal into the words of the protocol, where its clients show
// those and not what HTTP says.
func (fl *flow) dress(r *refusal) {
	if fl.model != nil {
		fl.dressCall(r)
		return
	}
	if c := fl.decision.Claim; c != nil && (c.Protocol == policy.ProtocolMCP || c.Protocol == policy.ProtocolJSONRPC) {
		r.inRPC(fl.msg.callID)
		return
	}
	service, advertised, ok := gitService(&fl.judged)
	agent := fl.judged.Header["User-Agent"]
	if !ok || len(agent) != 1 || !strings.HasPrefix(agent[0], "git/") {
		return
	}
	text := r.Reason
	if r.Error == errPolicy {
		text = "denied by the sandbox's policy: " + text
	}
	push := fl.msg.pushed
	switch {
	case advertised:
		r.content, r.contentType = []byte("hermes-wrap: "+text+" ("+r.ID+")\n"), "text/plain"
	case push != nil && push.status && fl.out != nil && fl.out.ContentLength >= 0 && fl.out.ContentLength <= smallPush:
		r.status = http.StatusOK // git shows no text that comes with an error
		r.content, r.contentType = push.refuse(oneLine(text)), "application/x-"+service+"-result"
	}
}

// oneLine keeps a reason from ending a line of the protocol.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	return s[:min(len(s), 500)]
}
