package credential

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"strings"
)

// prefixes are what kinds of keys begin with: public, and checked by clients.
// The longest that fits counts.
var prefixes = []string{
	"sk-ant-api03-", "sk-ant-admin01-", "sk-ant-oat01-", "sk-ant-ort01-", "sk-ant-", "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-", "sk-lf-", "pk-lf-", "sk-",
	"sk_live_", "sk_test_", "rk_live_", "rk_test_", "pk_live_", "pk_test_", "whsec_",
	"github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "AIza", "ya29.", "1//0", "GOCSPX-",
	"AKIA", "ASIA", "xoxb-", "xoxp-", "xoxa-", "xoxe-", "xoxs-", "xapp-", "npm_", "pypi-", "hf_", "gsk_", "xai-", "r8_", "pplx-", "nvapi-", "fw_", "csk-", "lin_api_",
	"ntn_", "secret_", "dop_v1_", "dckr_pat_", "SG.", "key-", "tvly-", "fc-", "jina_", "lsv2_pt_", "lsv2_sk_", "sntrys_", "sntryu_", "shpat_", "hvs.", "s.", "ops_", "Bearer ",
}

const (
	lowers = "abcdefghijklmnopqrstuvwxyz"
	uppers = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// Placeholder makes a text in the shape of a secret: its length, its well-known
// prefix, its punctuation, and at every other place another character of the
// same class. Nothing else of the secret is in it.
func Placeholder(secret string) string {
	if p, ok := token(secret); ok {
		return p
	}
	return shape(secret, publicPrefix(secret))
}

// publicPrefix is the length of what is known of a secret by its kind alone.
func publicPrefix(secret string) int {
	longest := 0
	for _, p := range prefixes {
		// A short secret could be all prefix.
		if strings.HasPrefix(secret, p) && len(p) > longest && len(p) <= len(secret)/2 {
			longest = len(p)
		}
	}
	return longest
}

// shape changes every letter and digit from the n-th byte on. Where there are
// few, punctuation is what is secret, and is changed too. Of a long one the part
// counts that is looked for: the placeholder would be taken for it otherwise.
func shape(secret string, n int) string {
	out := []byte(secret)
	alnum, from := 0, n
	if len(secret) > longSecret {
		from = max(n, len(secret)-keptOfLong)
	}
	for _, c := range out[from:] {
		if classOf(c) != "" {
			alnum++
		}
	}
	hexadecimal := isHexText(secret[n:])
	for i := n; i < len(out); i++ {
		class := classOf(out[i])
		switch {
		case class == "" && alnum >= minSecret:
			continue
		case class == "":
			class = lowers
		case hexadecimal && class != digits:
			class = class[:6]
		}
		out[i] = other(class, out[i])
	}
	return string(out)
}

func classOf(c byte) string {
	for _, class := range []string{lowers, uppers, digits} {
		if strings.IndexByte(class, c) >= 0 {
			return class
		}
	}
	return ""
}

func isHexText(s string) bool {
	return strings.Trim(s, "0123456789abcdef-") == "" || strings.Trim(s, "0123456789ABCDEF-") == ""
}

// other gives a random character of a class that is not c.
func other(class string, c byte) byte {
	class = strings.ReplaceAll(class, string(c), "")
	return class[below(len(class))]
}

// below gives a random number from 0 to n-1; n is at most 26.
func below(n int) int {
	for {
		var b [1]byte
		_, _ = rand.Read(b[:]) // never fails (Go 1.24)
		if v := int(b[0]); v < 256-256%n {
			return v % n
		}
	}
}

// token makes a placeholder for a JSON Web Token: clients take such apart and
// read when it expires. The header, which says no more than how it was signed,
// is kept.
func token(secret string) (string, bool) {
	parts := strings.Split(secret, ".")
	if len(parts) != 3 || !strings.HasPrefix(secret, "eyJ") || len(parts[2]) < minSecret {
		return "", false
	}
	for _, p := range parts {
		if _, err := base64.RawURLEncoding.DecodeString(p); err != nil {
			return "", false
		}
	}
	return parts[0] + "." + claims(parts[1]) + "." + shape(parts[2], 0), true
}

// farAway is when the placeholder of a token expires: in the year 2100. When the
// real one does is the proxy's business.
const farAway = 4102444800

// claims makes an object of the same length that means nothing.
func claims(payload string) string {
	size := base64.RawURLEncoding.DecodedLen(len(payload))
	for _, head := range []string{`{"exp":` + strconv.Itoa(farAway) + `,"jti":"`, `{"jti":"`} {
		if fill := size - len(head) - len(`"}`); fill >= minSecret {
			return base64.RawURLEncoding.EncodeToString([]byte(head + shape(strings.Repeat("a", fill), 0) + `"}`))
		}
	}
	return shape(payload, 0)
}

// fit gives a text the length of another, so that one can stand for the other
// in an answer whose length was announced.
func fit(placeholder string, length int) string {
	if len(placeholder) >= length {
		return placeholder[:length]
	}
	return placeholder + strings.Repeat("x", length-len(placeholder))
}
