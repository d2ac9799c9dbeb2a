package proxy

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// positions are the places of a request in which a text can leave.
var positions = map[string]func(t *testing.T, host, text string) *http.Request{
	"bearer": func(t *testing.T, host, text string) *http.Request {
		return with(newRequest(t, "GET", "https://"+host+"/", nil), "Authorization", "Bearer "+text)
	},
	"basic": func(t *testing.T, host, text string) *http.Request {
		r := newRequest(t, "GET", "https://"+host+"/", nil)
		r.SetBasicAuth("user", text)
		return r
	},
	"any field": func(t *testing.T, host, text string) *http.Request {
		return with(newRequest(t, "GET", "https://"+host+"/", nil), "X-Whatever", "a "+text)
	},
	"field name": func(t *testing.T, host, text string) *http.Request {
		r := newRequest(t, "GET", "https://"+host+"/", nil)
		r.Header["X-"+text] = []string{"1"}
		return r
	},
	"cookie": func(t *testing.T, host, text string) *http.Request {
		return with(newRequest(t, "GET", "https://"+host+"/", nil), "Cookie", "a=b; c="+text)
	},
	"user agent": func(t *testing.T, host, text string) *http.Request {
		return with(newRequest(t, "GET", "https://"+host+"/", nil), "User-Agent", text)
	},
	"path": func(t *testing.T, host, text string) *http.Request {
		return newRequest(t, "GET", "https://"+host+"/a/"+url.PathEscape(text)+"/b", nil)
	},
	"query": func(t *testing.T, host, text string) *http.Request {
		return newRequest(t, "GET", "https://"+host+"/?q="+url.QueryEscape(text), nil)
	},
	"query name": func(t *testing.T, host, text string) *http.Request {
		return newRequest(t, "GET", "https://"+host+"/?"+url.QueryEscape(text)+"=1", nil)
	},
	"form": func(t *testing.T, host, text string) *http.Request {
		return with(newRequest(t, "POST", "https://"+host+"/", strings.NewReader("a=1&b="+url.QueryEscape(text))), "Content-Type", "application/x-www-form-urlencoded")
	},
	"json": func(t *testing.T, host, text string) *http.Request {
		return with(newRequest(t, "POST", "https://"+host+"/", strings.NewReader(`{"a":"`+text+`"}`)), "Content-Type", "application/json")
	},
	"multipart": func(t *testing.T, host, text string) *http.Request {
		return with(newRequest(t, "POST", "https://"+host+"/", strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n"+text+"\r\n--b--\r\n")), "Content-Type", "multipart/form-data; boundary=b")
	},
	"chunked": func(t *testing.T, host, text string) *http.Request {
		return newRequest(t, "POST", "https://"+host+"/", io.MultiReader(strings.NewReader("a"+text[:len(text)/2]), strings.NewReader(text[len(text)/2:]+"b")))
	},
	"far into a large body": func(t *testing.T, host, text string) *http.Request {
		return newRequest(t, "POST", "https://"+host+"/", strings.NewReader(strings.Repeat("x", 2*searchAhead)+text+strings.Repeat("y", 1000)))
	},
	"at the end of a large body": func(t *testing.T, host, text string) *http.Request {
		return newRequest(t, "PUT", "https://"+host+"/", strings.NewReader(strings.Repeat("x", 2*searchAhead)+text))
	},
	"gzip": func(t *testing.T, host, text string) *http.Request {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, "packed "+text)
		_ = z.Close()
		return with(newRequest(t, "POST", "https://"+host+"/", &b), "Content-Encoding", "gzip")
	},
	"trailer": func(t *testing.T, host, text string) *http.Request {
		r := newRequest(t, "POST", "https://"+host+"/", io.MultiReader(strings.NewReader("body")))
		r.Trailer = http.Header{"X-Sum": {text}}
		return r
	},
	"large body with a trailer": func(t *testing.T, host, text string) *http.Request {
		r := newRequest(t, "POST", "https://"+host+"/", io.MultiReader(strings.NewReader(strings.Repeat("x", 2*searchAhead))))
		r.Trailer = http.Header{"X-Sum": {text}}
		return r
	},
}

func with(r *http.Request, name, value string) *http.Request {
	r.Header.Set(name, value)
	return r
}
