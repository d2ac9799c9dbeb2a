package proxy

import (
	"context"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy"
)

// grpcType is the type of a call's content; "+proto" or the like may follow.
const grpcType = "application/grpc"

// grpc judges a call by service and method. Its messages, which may be
// compressed, are carried unread.
func (fl *flow) grpc() *refusal {
	if !isGRPC(fl.out.Header) {
		return forbidden(fl.f.host, "the content is not exactly "+grpcType+": gRPC-Web and other variants are not supported")
	}
	if !fl.f.h2 {
		return forbidden(fl.f.host, "gRPC needs HTTP/2 over TLS")
	}
	call := netpolicy.Call{Method: strings.TrimPrefix(fl.judged.Path, "/")}
	if d := fl.decision.Claim.Call(call); d.Verdict != netpolicy.Allow {
		return denied(fl.f.host, d)
	}
	fl.replies = append(fl.replies, fl.grpcAnswer) //nolint:bodyclose // whoever sends the request closes it
	return nil
}

// grpcAnswer refuses an answer in HTTP/1.1, which a call cannot have.
func (fl *flow) grpcAnswer(resp *http.Response) *refusal {
	if resp.ProtoMajor == 2 {
		return nil
	}
	return unreachable(fl.f.host, http.StatusBadGateway, "the server does not speak HTTP/2, which gRPC needs")
}

// isGRPC tells whether a request is a gRPC call and says so in the one way.
func isGRPC(h http.Header) bool {
	values := h["Content-Type"]
	if len(values) != 1 {
		return false
	}
	kind, _, err := mime.ParseMediaType(values[0])
	return err == nil && (kind == grpcType || strings.HasPrefix(kind, grpcType+"+"))
}

// withCallTimeout gives a call no longer than its client does, so that what it
// takes here ends then too.
func withCallTimeout(r *http.Request) (*http.Request, context.CancelFunc) {
	values := r.Header["Grpc-Timeout"]
	if len(values) != 1 || !isGRPC(r.Header) {
		return r, func() {}
	}
	units := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
	}
	text := values[0]
	if len(text) < 2 || len(text) > 9 { // at most eight digits
		return r, func() {}
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	unit := units[text[len(text)-1]]
	if err != nil || unit == 0 || n > uint64(math.MaxInt64/unit) {
		return r, func() {}
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(n)*unit)
	return r.WithContext(ctx), cancel
}

// The codes of gRPC that refusals have.
const (
	grpcInvalidArgument   = 3
	grpcDeadlineExceeded  = 4
	grpcPermissionDenied  = 7
	grpcResourceExhausted = 8
	grpcUnavailable       = 14
)

// grpcCode is the status by which a client of gRPC knows what happened. Unavailable
// is the only one that it tries again on its own.
func (r *refusal) grpcCode() int {
	switch r.Error {
	case errRequest:
		return grpcInvalidArgument
	case errLimit:
		return grpcResourceExhausted
	case errUpstream:
		return grpcUnavailable
	default:
		return grpcPermissionDenied
	}
}

// answerGRPC refuses a call in the form that its client understands: a head that
// is trailers too, and no body.
func answerGRPC(ctx context.Context, w http.ResponseWriter, r *refusal) {
	code := r.grpcCode()
	// The server's own clock may strike a moment before ours.
	if due, ok := ctx.Deadline(); ok && code == grpcUnavailable && time.Until(due) < 20*time.Millisecond {
		code = grpcDeadlineExceeded
	}
	text := r.Reason
	if r.Hint != "" {
		text += "; " + r.Hint
	}
	h := w.Header()
	h["Content-Type"] = []string{grpcType}
	h["Date"] = nil
	h["Grpc-Status"] = []string{strconv.Itoa(code)}
	h["Grpc-Message"] = []string{url.PathEscape(text + " (" + r.Error + " " + r.ID + ")")}
	h[decisionHeader] = []string{r.decision()}
	w.WriteHeader(http.StatusOK)
}
