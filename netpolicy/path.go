package netpolicy

import (
	"errors"
	"net/url"
)

// CanonicalPath gives the one form of a request path.
func CanonicalPath(raw string) (string, error) { return "", errors.New("not yet") }

// SplitTarget splits a request target in origin form.
func SplitTarget(target string) (path, query string, err error) {
	return "", "", errors.New("not yet")
}

// ParseQuery reads a query strictly.
func ParseQuery(raw string) (url.Values, error) { return nil, errors.New("not yet") }
