package hermes

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// shape is what a kind of key looks like, as its issuer documents it or as issued
// keys show. It is loose where issuers vary.
type shape struct {
	names  []string // variables that hold one
	prefix string
	rest   string // what follows it, as a regular expression
	length string // for people
}

func shapeOf(prefix, rest, length string, names ...string) shape {
	return shape{names, prefix, rest, length}
}

var shapes = []shape{
	shapeOf("sk-or-v1-", `[0-9a-f]{64}`, "73 characters", "OPENROUTER_API_KEY"),
	shapeOf("sk-ant-", `[A-Za-z0-9_-]{80,120}`, "about 108 characters", "ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN"),
	shapeOf("sk-", `[A-Za-z0-9_-]{40,220}`, "51 characters or more", "OPENAI_API_KEY"),
	shapeOf("AIza", `[A-Za-z0-9_-]{35}`, "39 characters", "GOOGLE_API_KEY", "GEMINI_API_KEY"),
	shapeOf("gsk_", `[A-Za-z0-9]{40,60}`, "56 characters", "GROQ_API_KEY"),
	shapeOf("xai-", `[A-Za-z0-9]{60,100}`, "84 characters", "XAI_API_KEY"),
	shapeOf("hf_", `[A-Za-z0-9]{30,40}`, "37 characters", "HF_TOKEN"),
	shapeOf("", `(gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255})`, "40 characters or more", "GITHUB_TOKEN", "GH_TOKEN"),
	shapeOf("", `[0-9]{6,12}:[A-Za-z0-9_-]{35}`, "a number, a colon and 35 characters", "TELEGRAM_BOT_TOKEN"),
	shapeOf("", `[A-Za-z0-9_-]{23,32}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,45}`, "three parts with dots, 59 characters or more", "DISCORD_BOT_TOKEN"),
	shapeOf("xoxb-", `[0-9A-Za-z-]{40,90}`, "about 56 characters", "SLACK_BOT_TOKEN"),
	shapeOf("xapp-", `[0-9A-Za-z-]{60,150}`, "about 98 characters", "SLACK_APP_TOKEN"),
}

// mangled says what a console changed in a key or an address: one that types what
// is pasted as key presses, on another keyboard layout, changes ":", "@", "=" and
// "/". It gives "" when nothing looks wrong. What it says holds no part of the key
// beyond its public prefix.
func mangled(name, value string) string {
	if strings.ContainsAny(value, "\x00\t ") || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "it holds blanks or control characters"
	}
	for _, r := range value {
		if r > 0x7e {
			return fmt.Sprintf("it holds %q, which no key has", r)
		}
	}
	if !utf8.ValidString(value) {
		return "it is not text"
	}
	for _, s := range shapes {
		for _, n := range s.names {
			if n == name {
				return s.judge(value)
			}
		}
	}
	switch {
	case strings.HasSuffix(name, "_BASE_URL"), strings.HasSuffix(name, "_URL"):
		if !regexp.MustCompile(`^(https?|wss?)://[^/\s]+`).MatchString(value) {
			return `it does not begin with "https://"`
		}
	case strings.HasSuffix(name, "_EMAIL"), strings.HasSuffix(name, "EMAIL_ADDRESS"), name == "EMAIL_USER":
		if strings.Count(value, "@") != 1 {
			return `an address has one "@"`
		}
	}
	return ""
}

func (s shape) judge(value string) string {
	switch {
	case regexp.MustCompile(`^` + regexp.QuoteMeta(s.prefix) + s.rest + `$`).MatchString(value):
		return ""
	case s.prefix != "" && !strings.HasPrefix(value, s.prefix):
		return fmt.Sprintf("it does not begin with %q", s.prefix)
	}
	if odd := strings.IndexFunc(value, func(r rune) bool { return !strings.ContainsRune(keyLetters, r) }); odd >= 0 {
		return fmt.Sprintf("its character %d is %q, which this kind of key does not have", odd+1, value[odd])
	}
	return fmt.Sprintf("it has %d characters; this kind has %s", len(value), s.length)
}

const keyLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:"

// placeholders are what examples and forms have in a key's place.
var placeholders = []string{
	"changeme", "change-me", "change_me", "your-key", "your_key", "yourkey", "your-api-key", "your_api_key", "api-key", "apikey",
	"secret", "password", "example", "placeholder", "insert", "replace", "todo", "test", "dummy", "xxxx", "0123456789abcdef", "<", "...",
}

// MinServerKey is the least length of an API server's key: Hermes refuses shorter
// ones since June 2026, although some of its pages still say 8.
const MinServerKey = 16

// WeakKey says why a key is no real one, or "".
func WeakKey(key string) string {
	if len(key) < MinServerKey {
		return fmt.Sprintf("it has %d characters, fewer than %d", len(key), MinServerKey)
	}
	lower := strings.ToLower(key)
	for _, p := range placeholders {
		if strings.Contains(lower, p) && len(p)*2 >= len(lower) || strings.HasPrefix(lower, p) && len(p) > 4 {
			return "it looks like a placeholder"
		}
	}
	seen := map[rune]bool{}
	for _, r := range lower {
		seen[r] = true
	}
	if len(seen) < 6 {
		return fmt.Sprintf("it has only %d different characters", len(seen))
	}
	return ""
}
