package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// minPlaceholder is the shortest placeholder: shorter ones are found by chance in
// what has nothing to do with them.
const minPlaceholder = 8

// validateCredentials checks each entry by itself.
func (l *layer) validateCredentials() {
	for _, name := range sortedKeys(l.pol.Credentials) {
		c, path := l.pol.Credentials[name], "credentials."+name
		l.validateSource(path+".source", c.Source)
		l.validateAttach(path, c)
		if n := len(c.Expose.Placeholder); l.has(path+".expose.placeholder") && n < minPlaceholder {
			l.add(l.at(path+".expose.placeholder"), path+".expose.placeholder", fmt.Sprintf("has %d characters, fewer than %d", n, minPlaceholder),
				"remove it: one is made in the shape of the secret")
		}
		if c.OAuth != nil && c.OAuth.ClientSecret != nil {
			l.validateSource(path+".oauth.client_secret", *c.OAuth.ClientSecret)
		}
	}
}

// validateSource wants exactly one source.
func (l *layer) validateSource(path string, s CredentialSource) {
	var found []string
	for _, f := range fieldsOf(reflect.TypeFor[CredentialSource]()) {
		if key := path + "." + f.key; f.key != "dotenv" && f.key != "key" && (l.has(key) || l.refused(key)) {
			found = append(found, f.key)
		}
	}
	dotenv := path + ".dotenv"
	switch {
	case l.has(dotenv) && !l.has(path+".env") && !l.refused(path+".env"):
		l.add(l.at(dotenv), dotenv, "names no variable", "write {env: NAME, dotenv: FILE}")
	case l.has(path+".key") && !l.has(path+".file") && !l.refused(path+".file"):
		l.add(l.at(path+".key"), path+".key", "names no file", "write {file: PATH, key: KEY}")
	case l.has(path+".key") && s.Key == "":
		l.add(l.at(path+".key"), path+".key", "is empty", "name the entry of the file, or remove it")
	case len(found) == 0 && (l.has(path) || l.refused(path)) && !l.refusedBelow(path):
		l.add(l.at(path), path, "names no source", `write one: {env: NAME}, {file: PATH}, {command: [PROGRAM]}, {keyring: SERVICE/USER} or {systemd: NAME}`)
	case len(found) > 1:
		l.add(l.at(path), path, fmt.Sprintf("names %d sources: %s", len(found), strings.Join(found, ", ")), "keep one of them")
	}
	if len(s.Command) == 0 || !l.has(path+".command") {
		return
	}
	for i, word := range s.Command {
		at := fmt.Sprintf("%s.command[%d]", path, i)
		if word == "" && i == 0 {
			l.add(l.at(at), at, "the program has no name", "write its path")
		}
		if strings.Contains(word, "/") && word[0] != '/' && (i == 0 || word[0] == '.') {
			l.add(l.at(at), at, fmt.Sprintf("%q depends on the directory that hermes-wrap is started in", word), "write the absolute path")
		}
	}
}

// validateAttach checks that the fields of the entry belong to its "attach".
func (l *layer) validateAttach(path string, c Credential) {
	if !l.has(path + ".attach") {
		return // missing or refused: reported
	}
	for _, f := range []struct {
		key      string
		with     string
		required bool
	}{
		{"header", "header", true},
		{"prefix", "header", false},
		{"user", "basic", true},
		{"query", "query", true},
		{"json", "json", true},
		{"aws", "sigv4", false},
	} {
		key := path + "." + f.key
		switch written := l.has(key) || l.refused(key); {
		case written && c.Attach != f.with:
			l.add(l.at(key), key, fmt.Sprintf("has no meaning with attach: %s", c.Attach), fmt.Sprintf("it belongs to attach: %s", f.with))
		case !written && c.Attach == f.with && f.required:
			l.add(l.at(path), key, "missing", fmt.Sprintf("attach: %s needs it", f.with))
		}
	}
	if c.OAuth != nil && (c.Attach == "sigv4" || c.Attach == "basic") {
		l.add(l.at(path+".oauth"), path+".oauth", fmt.Sprintf("an access token cannot be attached with %s", c.Attach), "write attach: bearer, or remove oauth")
	}
	if name := strings.ToLower(c.Header); slices.Contains(framingFields(), name) {
		l.add(l.at(path+".header"), path+".header", fmt.Sprintf("the field %q is the connection's own", c.Header), "name the field that the server reads the secret from")
	}
}

// framingFields are header fields that say how a request is carried.
func framingFields() []string {
	return []string{
		"connection", "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive", "proxy-authorization",
		"proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
	}
}
