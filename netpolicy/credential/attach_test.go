package credential

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

func testRequest(rawQuery string, h http.Header) *http.Request {
	return &http.Request{Method: "GET", Host: "api.example.org", Header: h, URL: &url.URL{Scheme: "https", Host: "api.example.org", Opaque: "/a", RawQuery: rawQuery}}
}

func TestAttach(t *testing.T) {
	const secret = "s3cret/with+signs"
	for name, c := range map[string]struct {
		spec  policy.Credential
		field string
		want  string
	}{
		"bearer": {policy.Credential{Attach: "bearer"}, "Authorization", "Bearer " + secret},
		"basic":  {policy.Credential{Attach: "basic", User: "me"}, "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+secret))},
		"header": {policy.Credential{Attach: "header", Header: "x-api-key", Prefix: "token "}, "X-Api-Key", "token " + secret},
		"query":  {policy.Credential{Attach: "query", Query: "key"}, "", "a=1&key=s3cret%2Fwith%2Bsigns"},
	} {
		t.Run(name, func(t *testing.T) {
			cred := &Credential{Spec: c.spec}
			// Whatever the client sends, one value arrives.
			r := testRequest("KEY=mine&a=1&k%65y=mine&key[]=mine&%20key=mine&key=other", http.Header{
				"Authorization": {"Bearer mine", "Bearer mine too"}, "X-Api-Key": {"mine"}, "X_api_key": {"mine"}, "X.Api.Key": {"mine"}, "api-key": {"mine"},
				"X-Goog-Api-Key": {"mine"}, "Private-Token": {"mine"}, "Accept": {"*/*"},
			})
			if c.spec.Attach != "query" {
				r.URL.RawQuery = "a=1"
			}
			cred.Strip(r)
			if err := cred.Attach(r, secret); err != nil {
				t.Fatal(err)
			}
			want := http.Header{"Accept": {"*/*"}}
			got := r.URL.RawQuery
			if c.field != "" {
				want[c.field] = []string{c.want}
				got = strings.Join(r.Header[c.field], "|")
			}
			if got != c.want || len(r.Header) != len(want) {
				t.Errorf("got %q and fields %v, want %q and %v", got, r.Header, c.want, want)
			}
		})
	}
}

func TestAttachRefuses(t *testing.T) {
	for name, c := range map[string]struct{ attach, secret string }{
		"line end": {"bearer", "abc\r\nX: y"}, "nul": {"query", "abc\x00"}, "json": {"json", "abcdefgh"}, "nothing": {"", "abcdefgh"}, "sigv4": {"sigv4", "abcdefgh"},
	} {
		r := testRequest("", http.Header{})
		if err := (&Credential{Spec: policy.Credential{Attach: c.attach}}).Attach(r, c.secret); err == nil || len(r.Header) > 0 {
			t.Errorf("%s: got %v and %v, want an error and nothing attached", name, err, r.Header)
		}
	}
}

func TestPlace(t *testing.T) {
	c := &Credential{Spec: policy.Credential{Attach: "json", JSON: "/auth/key"}}
	for name, tc := range map[string]struct{ body, want string }{
		"replaced":     {`{"a":1,"auth":{"key":"mine","x":2}}`, `{"a":1,"auth":{"key":"s3cret00","x":2}}`},
		"added":        {`{"auth":{}}`, `{"auth":{"key":"s3cret00"}}`},
		"no place":     {`{"a":1}`, ""},
		"another case": {`{"auth":{"Key":"mine"}}`, ""},
		"not here":     {`{"auth":"x"}`, ""},
	} {
		v, err := strictjson.Parse([]byte(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Place(v, "s3cret00")
		if tc.want == "" && err == nil || tc.want != "" && string(got.Append(nil)) != tc.want {
			t.Errorf("%s: got %s, %v, want %q", name, got.Append(nil), err, tc.want)
		}
	}
}

func TestSigned(t *testing.T) {
	const good = "AWS4-HMAC-SHA256 Credential=AKIAX/20251130/eu-central-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=00"
	for name, c := range map[string]struct {
		auth   []string
		query  string
		hash   string
		region string
		want   string // of the error
	}{
		"the client's":         {auth: []string{good}},
		"whole payload":        {auth: []string{good}, hash: strings.Repeat("0a", 32)},
		"unsigned":             {auth: []string{good}, hash: "UNSIGNED-PAYLOAD"},
		"trailer":              {auth: []string{good}, hash: "STREAMING-UNSIGNED-PAYLOAD-TRAILER"},
		"signed pieces":        {auth: []string{good}, hash: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", want: "one by one"},
		"signed pieces, more":  {auth: []string{good}, hash: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", want: "one by one"},
		"bad hash":             {auth: []string{good}, hash: "xyz", want: "malformed"},
		"not signed":           {want: "neither"},
		"two signatures":       {auth: []string{good, good}, want: "two signatures"},
		"asymmetric":           {auth: []string{strings.Replace(good, "HMAC", "ECDSA-P256", 1)}, want: "another way"},
		"another region":       {auth: []string{good}, region: "us-east-1", want: "the policy says otherwise"},
		"scope with a slash":   {auth: []string{strings.Replace(good, "/s3/", "/s3/x/", 1)}, want: "malformed"},
		"scope of other signs": {auth: []string{strings.Replace(good, "/s3/", "/s3\n/", 1)}, want: "malformed"},
		"presigned":            {query: "a=1&X-Amz-Signature=00", want: "presigned"},
		"presigned, escaped":   {query: "x-amz-%73ignature=00", want: "presigned"},
		"presigned, old":       {query: "AWSAccessKeyId=00", want: "presigned"},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRequest(c.query, http.Header{})
			if c.auth != nil {
				r.Header["Authorization"] = c.auth
			}
			if c.hash != "" {
				r.Header["X-Amz-Content-Sha256"] = []string{c.hash}
			}
			cred := &Credential{Spec: policy.Credential{Attach: "sigv4", AWS: policy.AWSScope{Region: c.region}}}
			s, err := cred.Signed(r)
			switch {
			case c.want == "" && (err != nil || s.Region != "eu-central-1" || s.Service != "s3" || s.Hash != c.hash):
				t.Errorf("got %+v, %v, want the client's scope", s, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want an error about %q", err, c.want)
			}
		})
	}
}
