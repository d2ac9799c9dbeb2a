package netpolicy

import (
	"fmt"
	"slices"
	"strings"
)

// registered lists the methods of the IANA registry. A rule that names no
// method means these, less the ones in never; other methods must be named.
var registered = []string{
	"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE",
	"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL",
	"LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL",
	"MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PROPFIND",
	"PROPPATCH", "QUERY", "REBIND", "REPORT", "SEARCH", "UNBIND", "UNCHECKOUT",
	"UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL",
}

// methodBits gives each registered method its bit in a methodSet.
var methodBits = func() map[string]uint64 {
	bits := make(map[string]uint64, len(registered))
	for i, m := range registered {
		bits[m] = 1 << i
	}
	return bits
}()

// never tells whether a method is denied whatever the rules say. TRACE echoes
// the request with what the proxy added to it; CONNECT and PRI do not ask for a
// resource but change what the connection is.
func never(method string) bool {
	return method == "TRACE" || method == "CONNECT" || method == "PRI"
}

// methodSet is a set of methods. The zero value is empty.
type methodSet struct {
	all   bool // every method there may ever be; for denials
	bits  uint64
	names []string // the ones that are not registered
}

// The sets of the access shorthands.
var (
	readOnly  = mustMethods("GET", "HEAD", "OPTIONS")
	readWrite = mustMethods("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH")
	full      = mustMethods(registered...)
	everyDeny = methodSet{all: true}
)

func mustMethods(names ...string) methodSet {
	var s methodSet
	for _, m := range names {
		s.bits |= methodBits[m]
	}
	return s
}

func parseMethods(names []string) (methodSet, error) {
	var s methodSet
	for _, m := range names {
		if m != strings.ToUpper(m) && isToken(m) {
			return methodSet{}, fmt.Errorf("method %q is not in normal form: write %q", m, strings.ToUpper(m))
		}
		if !isToken(m) {
			return methodSet{}, fmt.Errorf("%q is not a method", m)
		}
		if bit, ok := methodBits[m]; ok {
			s.bits |= bit
			continue
		}
		s.names = append(s.names, m)
	}
	return s, nil
}

func (s methodSet) has(method string) bool {
	if s.all {
		return true
	}
	if bit, ok := methodBits[method]; ok {
		return s.bits&bit != 0
	}
	return slices.Contains(s.names, method)
}

func (s methodSet) union(t methodSet) methodSet {
	return methodSet{
		all:   s.all || t.all,
		bits:  s.bits | t.bits,
		names: slices.Concat(s.names, t.names),
	}
}

func (s methodSet) isEmpty() bool { return !s.all && s.bits == 0 && len(s.names) == 0 }

// without lists the methods of s that t lacks.
func (s methodSet) without(t methodSet) []string {
	return slices.DeleteFunc(s.list(), t.has)
}

func (s methodSet) list() []string {
	var names []string
	for i, m := range registered {
		if s.bits&(1<<i) != 0 {
			names = append(names, m)
		}
	}
	return append(names, s.names...)
}

// String completes the sentence "the rule allows only …".
func (s methodSet) String() string {
	if s.all || s.bits == full.bits {
		return "registered methods"
	}
	return strings.Join(s.list(), ", ")
}

// isToken tells whether s is a token of RFC 9110.
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte("!#$%&'*+-.^_`|~", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}
