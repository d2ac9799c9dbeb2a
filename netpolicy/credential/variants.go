package credential

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// variant is one spelling in which a text is searched for, and what takes its
// place in an answer: as long, or "" when nothing can.
type variant struct {
	text, instead string
	// known is how much of text says nothing: it is the same in the placeholder.
	known int
}

// variants gives the spellings of a text that are no mere escaping of single
// characters, which is undone while reading: as it is, in base64 at each of the
// three places where it can begin, in hexadecimal, and as usual libraries escape
// it. Letter case does not count, nor which alphabet of base64.
func variants(text, instead string) []variant {
	all := []variant{spelt(text, instead), spelt(hex.EncodeToString([]byte(text)), hex.EncodeToString([]byte(instead)))}
	for offset := range 3 {
		all = append(all, spelt(inBase64(text, offset), inBase64(instead, offset)))
	}
	for _, escape := range []func(string) string{url.QueryEscape, url.PathEscape, inJSON, inHTML} {
		if e := escape(text); e != text {
			all = append(all, spelt(e, escape(instead)))
		}
	}
	return all
}

func spelt(text, instead string) variant {
	v := variant{text: text}
	if len(instead) != len(text) {
		return v
	}
	v.instead = instead
	for v.known < len(text) && text[v.known] == instead[v.known] {
		v.known++
	}
	return v
}

// inBase64 gives the characters that depend on the text alone when it is encoded
// after a number of other bytes that leaves the given rest by 3.
func inBase64(text string, offset int) string {
	e := base64.RawStdEncoding.EncodeToString(append(make([]byte, offset), text...))
	first := (offset*8 + 5) / 6
	last := (offset + len(text)) * 8 / 6
	return e[first:last]
}

func inJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // strings only: cannot happen
		return s
	}
	return strings.ReplaceAll(string(b[1:len(b)-1]), "/", `\/`)
}

func inHTML(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;").Replace(s)
}
