package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/bmatcuk/doublestar/v4"
)

// form is one kind of text that a field may hold, named by its "is" tag.
type form struct {
	// pattern is the shape, as the schema states it.
	pattern string
	// check says what is wrong beyond the shape, and the right spelling.
	check func(string) (what, hint string)
	// example completes the hint when the shape is wrong.
	example string
	shape   func() *regexp.Regexp
}

// forms lists what the "is" and "key" tags name. A pattern describes what is
// necessary; check has the last word.
func forms(name string) (form, bool) {
	f, ok := allForms()[name]
	return f, ok
}

// allForms makes the list when the first policy is read, and not in every process
// of the program; a pattern is compiled for the first value that has its form.
var allForms = sync.OnceValue(func() map[string]form {
	all := map[string]form{
		"name":         {pattern: `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`, example: "letters, digits, dots, dashes and underscores: acme-hermes"},
		"rule-name":    {pattern: `^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`, example: "letters, digits, dots, dashes and underscores: github-read"},
		"extends":      {pattern: `^(builtin:[A-Za-z0-9][A-Za-z0-9._-]*|.*/.*|.*\.ya?ml)$`, check: checkExtends, example: `"builtin:strict", or a path to a file`},
		"env-name":     {pattern: `^[A-Za-z_][A-Za-z0-9_]*$`, example: "letters, digits and underscores: LANG"},
		"env-pattern":  {pattern: `^[A-Za-z_][A-Za-z0-9_]*(\*[A-Za-z0-9_]*)*$`, example: `a name, or a pattern that starts with a letter: "LC_*"`},
		"hostname":     {pattern: `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`, example: "one label of small letters, digits and dashes"},
		"umask":        {pattern: `^0[0-7]{3}$`, example: `four octal digits in quotes: "0077"`},
		"syscall":      {pattern: `^@?[a-z_][a-z0-9_-]*$`, example: `the name of a system call, or a set: "@network"`},
		"host":         {pattern: `^[^A-Z/@ ]+$`, check: checkHost, example: "small letters, no scheme and no path: api.example.org"},
		"host-name":    {pattern: `^[^A-Z/@* ]+$`, check: checkPlainHost, example: "a host name in small letters"},
		"ip":           {check: checkIP},
		"cidr":         {check: checkCIDR},
		"method":       {pattern: `^[A-Z][A-Z-]{0,31}$`, example: "upper case: GET"},
		"url-path":     {pattern: `^/`, check: checkURLPath, example: `starts with "/": "/v1/*"`},
		"query":        {},
		"header-name":  {pattern: "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$", example: "the name of a header field: X-Api-Key"},
		"json-pointer": {pattern: `^(/([^~]|~[01])*)?$`, check: checkPointer, example: `a JSON pointer: "/arguments/path"`},
		"pattern":      {pattern: `^.+$`, check: checkPattern, example: `a name or a pattern: "search_*"`},
		"proxy-url":    {pattern: `^(env|https?://.+)$`, check: checkProxyURL, example: `"env", or a URL: "http://proxy.example.org:3128"`},
		"https-url":    {pattern: `^https://[^/@ ]+`, check: checkHTTPSURL, example: `"https://auth.example.org/oauth/token"`},
		"keyring":      {pattern: `^[^/]+/[^/]+$`, example: `"SERVICE/USER"`},
		"publish":      {pattern: `^(.+:)?[0-9]+:[0-9]+$`, check: checkPublish, example: `"[ADDR:]HOST:PORT", e.g. "127.0.0.1:8080:80"`},
		"listen":       {pattern: `^(/.+|(.+:)?[0-9]+)$`, check: checkListen, example: `"[ADDR:]PORT" or a path: "127.0.0.1:8080", "/run/user/1000/agent.sock"`},
		"publish-to":   {pattern: `^(/.+|[0-9]+)$`, check: checkPublishTo, example: `a port or a path inside, in quotes: "8080"`},
		"image":        {pattern: `^[a-z0-9][A-Za-z0-9._/:@*-]*$`, check: checkImage, example: `a name with a tag: "python:3.12*"`},
		"health-url":   {pattern: `^http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?(/.*)?$`, example: `a URL of the sandbox's own loopback: "http://127.0.0.1:8642/health"`},
		"fragment":     {pattern: `^[a-z0-9]+/[a-z0-9][a-z0-9-]*$`, example: `"provider/openrouter", "channel/telegram"; hermes-wrap profiles lists them`},
		"host-port":    {pattern: `^.+:[0-9]+$`, check: checkHostPort, example: "host:port"},
		"url":          {pattern: `^[A-Z]+ (https?|wss?)://`, check: checkURL, example: `a method and an absolute URL: "GET https://example.org/"`},
		"no-glob":      {},
	}
	for name, f := range all {
		f.shape = lazy(f.pattern)
		all[name] = f
	}
	return all
})

// Form gives the JSON Schema pattern of an "is" or "key" tag, or "".
func Form(name string) string {
	f, _ := forms(name)
	return f.pattern
}

// checkValue tells what is wrong with a value of the named form.
func checkValue(name, value string) (what, hint string) {
	if name == "" {
		return "", ""
	}
	f, ok := forms(name)
	if !ok {
		return fmt.Sprintf("BUG: form %q is unknown", name), "please report this"
	}
	if f.check != nil {
		if what, hint := f.check(value); what != "" {
			return what, hint
		}
	}
	if !f.shape().MatchString(value) {
		return fmt.Sprintf("%q is not a valid %s", value, strings.ReplaceAll(name, "-", " ")), f.example
	}
	return "", ""
}

func checkExtends(s string) (what, hint string) {
	if !strings.ContainsAny(s, ":/") && !strings.HasSuffix(s, ".yaml") {
		return fmt.Sprintf("%q is neither a built-in nor a path", s), "write builtin:" + s + " or ./" + s + ".yaml"
	}
	return "", ""
}

func checkIP(s string) (what, hint string) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return fmt.Sprintf("%q is not an IP address", s), "write it as 192.0.2.1 or 2001:db8::1"
	case a.Zone() != "":
		return "an address with a zone is not allowed", "remove the %zone"
	case a.Unmap().String() != s:
		return fmt.Sprintf("%q is not in normal form", s), "write " + a.Unmap().String()
	}
	return "", ""
}

func checkCIDR(s string) (what, hint string) {
	if !strings.Contains(s, "/") {
		return checkIP(s)
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return fmt.Sprintf("%q is not an address range", s), "write it as 10.1.2.0/24"
	}
	if p.Addr().Is4In6() {
		return fmt.Sprintf("%q is an IPv4 range in IPv6 form", s), "write the IPv4 range"
	}
	if p.Masked().String() != s {
		return fmt.Sprintf("%q is not in normal form", s), "write " + p.Masked().String()
	}
	return "", ""
}

// checkURLPath wants a path as the engine sees it after normalising: what can
// never match is a mistake.
func checkURLPath(s string) (what, hint string) {
	switch {
	case strings.ContainsAny(s, "?#"):
		return fmt.Sprintf("%q has a query or fragment", s), `write parameters under "query"`
	case strings.Contains(s, "//"), strings.Contains(s+"/", "/../"), strings.Contains(s+"/", "/./"):
		return fmt.Sprintf("%q is not in normal form", s), `write it without "//", "/./" and "/../"`
	}
	return checkGlob(s)
}

// checkPattern wants a pattern over text that is not a path.
func checkPattern(s string) (what, hint string) {
	for _, seg := range strings.Split(s, "/") {
		if strings.Contains(seg, "**") && seg != "**" {
			return fmt.Sprintf("%q: \"**\" must be a whole segment", s), `write "a/**/b", or "*" within a segment`
		}
	}
	return "", ""
}

// checkPointer wants a JSON pointer that names something below the root.
func checkPointer(s string) (what, hint string) {
	if s == "" {
		return "the pointer is empty", `name a place: "/arguments/path"`
	}
	return "", ""
}

// checkProxyURL keeps passwords out of policies.
func checkProxyURL(s string) (what, hint string) {
	if s == "env" {
		return "", ""
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "":
		return fmt.Sprintf("%q is not a URL", s), `write "http://proxy.example.org:3128"`
	case u.User != nil:
		return "a policy holds no password", `set HTTPS_PROXY outside and write "env"`
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Sprintf("%q has more than a host and a port", s), "write " + u.Scheme + "://" + u.Host
	}
	return "", ""
}

func checkHTTPSURL(s string) (what, hint string) {
	u, err := url.Parse(s)
	if err != nil || u.User != nil || u.Fragment != "" {
		return fmt.Sprintf("%q is not a plain https URL", s), `write "https://auth.example.org/token"`
	}
	return checkPlainHost(u.Hostname())
}

// checkGlob holds the one meaning of wildcards: "*" within a segment, "**"
// across, nothing else.
func checkGlob(s string) (what, hint string) {
	if i := strings.IndexAny(s, `[]{}\`); i >= 0 {
		return fmt.Sprintf("%q holds %q, which has no meaning in a pattern", s, s[i:i+1]), `the wildcards are "*" and "**"`
	}
	for _, seg := range strings.Split(s, "/") {
		if strings.Contains(seg, "**") && seg != "**" {
			return fmt.Sprintf(`%q: "**" must stand alone between slashes`, s), `within a segment write "*"`
		}
	}
	if !doublestar.ValidatePattern(s) {
		return fmt.Sprintf("%q is not a valid pattern", s), `the wildcards are "*" and "**"`
	}
	return "", ""
}

func checkPublish(s string) (what, hint string) {
	parts := strings.Split(s, ":")
	if len(parts) < 2 {
		return "", ""
	}
	for _, p := range parts[len(parts)-2:] {
		if what, hint := checkPort(p); what != "" {
			return what, hint
		}
	}
	addr := strings.Join(parts[:len(parts)-2], ":")
	if addr == "" {
		return "", ""
	}
	if inner, ok := strings.CutPrefix(addr, "["); ok && strings.HasSuffix(inner, "]") {
		return checkIP(strings.TrimSuffix(inner, "]"))
	}
	if strings.Contains(addr, ":") {
		return fmt.Sprintf("%q is not a valid publish", s), "write an IPv6 address in brackets: [::1]:8080:80"
	}
	return checkIP(addr)
}

func checkListen(s string) (what, hint string) {
	if strings.HasPrefix(s, "/") {
		return checkCleanPath(s)
	}
	addr, port, ok := "", s, false
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		addr, port, ok = s[:i], s[i+1:], true
	}
	if what, hint := checkPort(port); what != "" {
		return what, hint
	}
	switch inner, bracketed := strings.CutPrefix(addr, "["); {
	case !ok:
		return "", ""
	case bracketed && strings.HasSuffix(inner, "]"):
		return checkIP(strings.TrimSuffix(inner, "]"))
	case strings.Contains(addr, ":"):
		return fmt.Sprintf("%q is not a place to listen", s), "write an IPv6 address in brackets: [::1]:8080"
	}
	return checkIP(addr)
}

func checkPublishTo(s string) (what, hint string) {
	if strings.HasPrefix(s, "/") {
		return checkCleanPath(s)
	}
	return checkPort(s)
}

// checkCleanPath wants the one spelling of an absolute path.
func checkCleanPath(s string) (what, hint string) {
	if clean := path.Clean(s); clean != s {
		return fmt.Sprintf("%q is not in normal form", s), "write " + clean
	}
	return "", ""
}

func checkPort(s string) (what, hint string) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != s {
		return fmt.Sprintf("%q is not a port", s), "ports are 1 to 65535, decimal"
	}
	return "", ""
}

func checkHostPort(s string) (what, hint string) {
	host, port, ok := cutPort(s)
	if !ok {
		return "", ""
	}
	if what, hint := checkPort(port); what != "" {
		return what, hint
	}
	return checkPlainHost(host)
}

// cutPort splits host:port, with an IPv6 address in brackets.
func cutPort(s string) (host, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	host, port = s[:i], s[i+1:]
	if inner, found := strings.CutPrefix(host, "["); found {
		return strings.TrimSuffix(inner, "]"), port, strings.HasSuffix(inner, "]")
	}
	return host, port, !strings.Contains(host, ":")
}

func checkURL(s string) (what, hint string) {
	_, raw, ok := strings.Cut(s, " ")
	if !ok {
		return "", ""
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return fmt.Sprintf("%q is not a URL", raw), `write "GET https://example.org/path"`
	case u.User != nil:
		return "a URL with a user name is not allowed", "remove what stands before the @"
	case u.Port() != "":
		if what, hint := checkPort(u.Port()); what != "" {
			return what, hint
		}
	}
	return checkPlainHost(u.Hostname())
}
