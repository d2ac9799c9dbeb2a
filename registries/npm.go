package registries

import (
	"fmt"
	"path/filepath"
	"strings"
)

// npmVariable is how an npmrc names a variable.
var npmVariable = lazy(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// setting is a value with the place where it stands.
type setting struct{ value, from, file string }

// npm reads npmrc files as npm does, the user's before the machine's before the
// installed npm's own: the first that sets a key counts.
func npm(r *reading) error {
	found := map[string]setting{}
	for _, name := range []string{"NPM_CONFIG_REGISTRY", "npm_config_registry"} {
		if v := r.Getenv(name); v != "" {
			found["registry"] = setting{v, name, ""}
		}
	}
	for _, path := range r.npmFiles() {
		text, err := r.file(path)
		if err != nil {
			return err
		}
		for _, e := range ini(text) {
			if _, have := found[e.key]; !have && e.section == "" {
				found[e.key] = setting{e.value, fmt.Sprintf("%s:%d", path, e.line), path}
			}
		}
	}
	if err := r.npmPlaces(found); err != nil {
		return err
	}
	if len(r.places) == 0 {
		return r.unset("npm config set registry URL writes one to ~/.npmrc")
	}
	if err := r.npmTokens(found); err != nil {
		return err
	}
	for _, name := range []string{"npm_config_audit", "npm_config_fund", "npm_config_update_notifier"} {
		r.env[name] = "false" // what they ask is refused
	}
	return nil
}

func (r *reading) npmFiles() []string {
	user := r.Getenv("NPM_CONFIG_USERCONFIG")
	if user == "" {
		user = filepath.Join(r.Home, ".npmrc")
	}
	global := []string{r.Getenv("NPM_CONFIG_GLOBALCONFIG")}
	own := r.installed("npm") // PREFIX/lib/node_modules/npm/bin
	if global[0] == "" {
		prefix := r.Getenv("NPM_CONFIG_PREFIX")
		if prefix == "" {
			prefix = filepath.Join(filepath.Dir(r.installed("node")))
		}
		global = []string{filepath.Join(prefix, "etc/npmrc"), "/etc/npmrc"}
	}
	files := append([]string{user}, global...)
	if own != "" {
		files = append(files, filepath.Join(filepath.Dir(own), "npmrc"))
	}
	return files
}

// npmPlaces takes the registry for all packages and those of scopes.
func (r *reading) npmPlaces(found map[string]setting) error {
	for _, key := range sorted(found) {
		if key != "registry" && (!strings.HasPrefix(key, "@") || !strings.HasSuffix(key, ":registry")) {
			continue
		}
		s := found[key]
		value := npmVariable().ReplaceAllStringFunc(s.value, func(v string) string { return r.Getenv(v[2 : len(v)-1]) })
		if err := r.add(s.from, value, false); err != nil {
			return err
		}
		if key == "registry" {
			p, _ := parsePlace(s.from, value) // add has judged it
			r.env["npm_config_registry"] = p.url()
		}
	}
	return nil
}

// npmTokens finds the token of each place. Whatever else proves who somebody is
// is refused, unless it belongs to no place that is opened.
func (r *reading) npmTokens(found map[string]setting) error {
	secret, scoped := false, ""
	for _, key := range sorted(found) {
		s := found[key]
		scope, name, isAuth := cutAuth(key)
		if strings.HasPrefix(key, "@") && s.file != "" {
			scoped = s.file
		}
		if !isAuth {
			continue
		}
		secret = true
		for i := range r.places {
			p := &r.places[i]
			if !covers(scope, *p) {
				continue
			}
			if name != "_authToken" {
				return Trouble{fmt.Sprintf("%s: %s cannot be attached by the proxy", s.from, name), "npm login writes an _authToken instead"}
			}
			if p.scheme != "https" {
				return Trouble{fmt.Sprintf("%s: a token for a registry without https", s.from), "use an https URL, or remove the token"}
			}
			p.token = &token{file: s.file, key: key}
			if m := npmVariable().FindStringSubmatch(s.value); m != nil {
				if m[0] != s.value {
					return Trouble{fmt.Sprintf("%s: the token is more than one variable", s.from), "write ${NAME} alone"}
				}
				p.token = &token{env: m[1]}
			}
		}
	}
	if scoped != "" && !secret {
		r.show = append(r.show, scoped)
	}
	return nil
}

// cutAuth splits "//host/path/:_authToken".
func cutAuth(key string) (scope, name string, ok bool) {
	scope, name = "", key
	if strings.HasPrefix(key, "//") {
		i := strings.LastIndexByte(key, ':')
		scope, name = key[:max(i, 0)], key[i+1:]
	}
	switch name {
	case "_auth", "_authToken", "_password", "username", "certfile", "keyfile", "cert", "key":
		return scope, name, true
	}
	return "", "", false
}

// covers tells whether a scope ("//host/path/") is for a place, or for all.
func covers(scope string, p place) bool {
	_, own, _ := strings.Cut(p.url(), ":")
	return scope != "" && strings.HasPrefix(own, strings.TrimSuffix(scope, "/")+"/")
}
