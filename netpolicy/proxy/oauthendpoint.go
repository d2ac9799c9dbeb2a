package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/credential"
	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// tokenBytes bounds what the endpoint answers (bytes).
const tokenBytes = 1 << 20

var (
	errTokenLate  = errors.New("the token endpoint did not answer in time")
	errTokenReach = errors.New("the token endpoint cannot be reached")
	errTokenForm  = errors.New("the answer of the token endpoint is malformed")
)

// endpointError is a refusal of the token endpoint.
type endpointError struct {
	status int
	code   string // of RFC 6749, section 5.2, or ""
}

func (e *endpointError) Error() string {
	text := "the token endpoint answered with status " + strconv.Itoa(e.status)
	if e.code != "" {
		text += " (" + e.code + ")"
	}
	return text
}

// tokenRefused tells whether the refresh token was not taken.
func tokenRefused(err error) bool {
	var e *endpointError
	return errors.As(err, &e) && (e.code == "invalid_grant" || e.status == http.StatusUnauthorized)
}

// issued is what the endpoint gave.
type issued struct {
	access, refresh string
	lasts           time.Duration
}

// askEndpoint sends the refresh token (RFC 6749, section 6). A client with a
// secret shows it as Basic or, where that is not taken, in the body.
func (fl *flow) askEndpoint(ctx context.Context, c *credential.Credential, g *grant) (issued, error) {
	g.mu.Lock()
	refresh, inBody := g.refresh, g.inBody
	g.mu.Unlock()
	got, err := fl.postToken(ctx, c, refresh, inBody)
	var e *endpointError
	if c.Values().ClientSecret == "" || inBody || !errors.As(err, &e) || e.code != "invalid_client" && e.code != "invalid_request" && e.status != http.StatusUnauthorized {
		return got, err
	}
	if got, err = fl.postToken(ctx, c, refresh, true); err == nil {
		g.mu.Lock()
		g.inBody = true
		g.mu.Unlock()
	}
	return got, err
}

// postToken is one request. It is dialled as every other: the endpoint's
// addresses are judged, and its certificate is verified.
func (fl *flow) postToken(ctx context.Context, c *credential.Credential, refresh string, inBody bool) (issued, error) {
	spec, secret := c.Spec.OAuth, c.Values().ClientSecret
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}}
	if spec.Scope != "" {
		form.Set("scope", spec.Scope)
	}
	if spec.ClientID != "" && (secret == "" || inBody) {
		form.Set("client_id", spec.ClientID)
	}
	if secret != "" && inBody {
		form.Set("client_secret", secret)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, spec.TokenURL, strings.NewReader(form.Encode()))
	if err != nil || r.URL.Scheme != "https" {
		return issued{}, errors.New("the token endpoint is no https URL")
	}
	if r.URL.Port() == "" {
		r.URL.Host += ":443"
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	r.Header["User-Agent"] = nil
	if secret != "" && !inBody {
		r.SetBasicAuth(url.QueryEscape(spec.ClientID), url.QueryEscape(secret))
	}
	resp, err := fl.rules.out.h1.RoundTrip(r)
	if err != nil {
		if ctx.Err() != nil {
			return issued{}, errTokenLate
		}
		return issued{}, errTokenReach
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, tokenBytes+1))
	if err != nil || len(b) > tokenBytes {
		return issued{}, errTokenForm
	}
	return readIssued(resp.StatusCode, b)
}

// readIssued reads an answer. No text of it but an error code gets into an error.
func readIssued(status int, b []byte) (issued, error) {
	v, err := strictjson.Parse(b)
	if status != http.StatusOK {
		code := v.Get("error").Text()
		if len(code) > 40 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
			code = ""
		}
		return issued{}, &endpointError{status, code}
	}
	if err != nil || v.Exact("access_token", "refresh_token", "expires_in") != nil {
		return issued{}, errTokenForm
	}
	got := issued{access: v.Get("access_token").Text(), refresh: v.Get("refresh_token").Text(), lasts: tokenDefault}
	if len(got.access) < 8 || len(got.access) > 16<<10 || credential.Printable(got.access+got.refresh) != nil {
		return issued{}, errTokenForm
	}
	if e := v.Get("expires_in"); e.Kind() != strictjson.Invalid && e.Kind() != strictjson.Null {
		seconds, err := strconv.ParseInt(e.Text(), 10, 32)
		if err != nil || seconds < 1 {
			return issued{}, errTokenForm
		}
		got.lasts = time.Duration(seconds) * time.Second
	}
	return got, nil
}
