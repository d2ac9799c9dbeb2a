package docker

import "strings"

// maxImage bounds the name of an image.
const maxImage = 512

// normalImage writes the name of an image in the one form in which it is judged
// and sent: without the default registry, and with a tag or a digest. ok is false
// for what is no such name. What has a digest keeps no tag: the engine would not
// look at it.
func normalImage(s string) (name string, ok bool) {
	if s == "" || len(s) > maxImage || strings.Contains(s, "..") || strings.Contains(s, "//") {
		return "", false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || i == len(s)-1 || !strings.ContainsRune("._-/:@", rune(c))) {
			return "", false
		}
	}
	for _, prefix := range []string{"docker.io/", "index.docker.io/", "library/"} {
		s = strings.TrimPrefix(s, prefix)
	}
	repo, digest, hasDigest := strings.Cut(s, "@")
	last := repo[strings.LastIndexByte(repo, '/')+1:]
	base, tag, hasTag := strings.Cut(last, ":")
	repo = strings.TrimSuffix(repo, ":"+tag)
	switch {
	case base == "" || repo == "" || strings.ToLower(repo) != repo, hasTag && (tag == "" || strings.Contains(tag, ":")):
		return "", false
	case hasDigest:
		hex, isSHA := strings.CutPrefix(digest, "sha256:")
		if hasTag || !isSHA || !isHex(hex, 64) {
			return "", false
		}
		return repo + "@" + digest, true
	case hasTag:
		return repo + ":" + tag, true
	}
	return repo + ":latest", true
}

// isHex tells whether s is n small hexadecimal digits.
func isHex(s string, n int) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == n
}

// pattern is a name of images in normal form in which "*" stands for any run of
// characters of a tag or of one part of the name.
type pattern struct{ parts []string }

func newPattern(s string) pattern {
	for _, prefix := range []string{"docker.io/", "index.docker.io/", "library/"} {
		s = strings.TrimPrefix(s, prefix)
	}
	if last := s[strings.LastIndexByte(s, '/')+1:]; !strings.ContainsAny(last, ":@") {
		s += ":latest"
	}
	return pattern{strings.Split(s, "*")}
}

func (p pattern) match(name string) bool {
	rest, ok := strings.CutPrefix(name, p.parts[0])
	if !ok {
		return false
	}
	return matchRest(p.parts[1:], rest)
}

func matchRest(parts []string, rest string) bool {
	if len(parts) == 0 {
		return rest == ""
	}
	for i := 0; ; i++ {
		if tail, ok := strings.CutPrefix(rest[i:], parts[0]); ok && matchRest(parts[1:], tail) {
			return true
		}
		if i == len(rest) || strings.IndexByte("/:@", rest[i]) >= 0 {
			return false
		}
	}
}

// image gives the normal form of a name that the policy lists.
func (s *Set) image(text string) (string, error) {
	name, ok := normalImage(text)
	if !ok {
		return "", malformed("the image %q has no name of the form NAME:TAG or NAME@sha256:DIGEST", clip(text))
	}
	for _, p := range s.images {
		if p.match(name) {
			return name, nil
		}
	}
	return "", deny("the image %q is not listed in network.docker.images", name)
}

// clip keeps what a client wrote short in an answer.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
