package credential

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

func encoded(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

var shapes = []struct{ name, secret, prefix, format string }{
	{"anthropic", "sk-ant-api03-Zk9wQ_x-7VbN2mLr8TtYcAZk9wQx7VbN2mLr8TtYcA-AAAAAA", "sk-ant-api03-", `^sk-ant-api03-[\w-]{48,}$`},
	{"openai", "sk-proj-abc_defZk9wQx7VbN2mLr8TtYcA", "sk-proj-", `^sk-proj-[\w-]+$`},
	{"openai, old", "sk-Zk9wQx7VbN2mLr8TtYcAZk9wQx7VbN2mLr8TtYcAQx7V", "sk-", `^sk-[A-Za-z0-9]+$`},
	{"github", "ghp_Zk9wQx7VbN2mLr8TtYcAZk9wQx7VbN2mLr8T", "ghp_", `^ghp_[A-Za-z0-9]{36}$`},
	{"github, fine-grained", "github_pat_11ABCDEFG0Zk9wQx7VbN2m_Zk9wQx7VbN2mLr8TtYcAZk9wQx7VbN2mLr8TtYcAZk9wQx7VbN2mLr8TtYc", "github_pat_", `^github_pat_\w{22}_\w{59}$`},
	{"google", "AIzaSyZk9wQx7VbN2mLr8TtYcAZk9wQx7VbN2mL", "AIza", `^AIza[\w-]{35}$`},
	{"slack", "xoxb-123456789012-1234567890123-Zk9wQx7VbN2mLr8TtYcAZk9w", "xoxb-", `^xoxb-\d{12}-\d{13}-[A-Za-z0-9]{24}$`},
	{"aws id", "AKIAQQ7WERTYUIOPASDF", "AKIA", `^AKIA[A-Z0-9]{16}$`},
	{"uuid", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "", `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`},
	{"password", "hunter2hunter2!", "", `^[a-z]{6}\d[a-z]{6}\d!$`},
	{"punctuation", "!!??##$$%%&&", "", `^[a-z]{12}$`},
	{"all prefix", "sk-ant-api03-", "", `^.{13}$`},
}

func TestPlaceholder(t *testing.T) {
	for _, c := range shapes {
		t.Run(c.name, func(t *testing.T) {
			got := Placeholder(c.secret)
			checkPlaceholder(t, c.secret, got)
			if !strings.HasPrefix(got, c.prefix) || !regexp.MustCompile(c.format).MatchString(got) {
				t.Errorf("got %q, want the prefix %q and the format %s", got, c.prefix, c.format)
			}
			if again := Placeholder(c.secret); again == got {
				t.Errorf("got %q twice, want it random", got)
			}
		})
	}
}

// checkPlaceholder holds that at no place beyond the prefix, and punctuation
// aside, the placeholder has the secret's character.
func checkPlaceholder(t *testing.T, secret, got string) {
	t.Helper()
	if len(got) != len(secret) || got == secret {
		t.Fatalf("got %d characters, want %d others", len(got), len(secret))
	}
	if strings.HasPrefix(secret, "eyJ") && strings.Count(secret, ".") == 2 {
		return
	}
	for i := publicPrefix(secret); i < len(secret); i++ {
		if classOf(secret[i]) != "" && got[i] == secret[i] {
			t.Errorf("got %q at %d as in the secret", got[i], i)
		}
	}
}

func TestPlaceholderOfToken(t *testing.T) {
	head := encoded(`{"alg":"RS256","typ":"JWT","kid":"abc"}`)
	for _, payload := range []string{`{"sub":"somebody","exp":1700000000,"scope":"everything there is"}`, `{"sub":"x","e":12345}`, `{"s":1}`} {
		secret := head + "." + encoded(payload) + "." + encoded("a signature of some length 0123456789")
		got := Placeholder(secret)
		parts := strings.Split(got, ".")
		if len(got) != len(secret) || len(parts) != 3 || parts[0] != head {
			t.Fatalf("got %q, want three parts and the header", got)
		}
		if strings.Contains(got, strings.Split(secret, ".")[2]) {
			t.Errorf("got the signature in %q", got)
		}
		b, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil || len(payload) > 20 && !json.Valid(b) {
			t.Errorf("got payload %q, %v, want JSON", b, err)
		}
	}
}
