package secrets

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// names are the hosts that the servers answer for.
var names = []string{"github.test", "other.test", "s3.test"} //nolint:gochecknoglobals // constant

// site is the servers outside: github.test insists on a token, other.test takes
// everything, s3.test checks signatures.
type site struct {
	port int
	ca   []byte

	mu      sync.Mutex
	token   string // what github.test insists on
	seen    []string
	objects map[string][]byte
}

func newSite(t *testing.T, token string) *site {
	t.Helper()
	s := &site{token: token, objects: map[string][]byte{}}
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	var certificate tls.Certificate
	certificate, s.ca = issue(t)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	s.port = server.Listener.Addr().(*net.TCPAddr).Port
	return s
}

func (s *site) insist(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// ServeHTTP answers.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprint(r.Host, " ", r.Method, " ", r.RequestURI, " ", r.Header, string(body)))
	host, _, _ := net.SplitHostPort(r.Host)
	switch host {
	case "github.test":
		if r.Header.Get("Authorization") != "Bearer "+s.token {
			http.Error(w, "bad credentials", http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, "welcome, you sent %s\n", r.Header.Get("Authorization"))
	case "s3.test":
		s.serveS3(w, r, body)
	default:
		fmt.Fprintln(w, "anybody is welcome")
	}
}

// saw tells whether any request held a text.
func (s *site) saw(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.seen, func(r string) bool { return strings.Contains(r, text) })
}

// The keys that s3.test knows.
const (
	keyID     = "AKIAQQ7WERTYUIOPASDF"
	keySecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
)

func (s *site) serveS3(w http.ResponseWriter, r *http.Request, body []byte) {
	if err := checkSignature(r, body); err != nil {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error><Code>SignatureDoesNotMatch</Code><Message>%s</Message><AWSAccessKeyId>%s</AWSAccessKeyId></Error>", err, keyID)
		return
	}
	if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		body = unchunk(body)
	}
	key := r.URL.Path
	switch {
	case r.Method == http.MethodPut:
		s.objects[key] = body
	case r.URL.Query().Get("list-type") == "2":
		fmt.Fprint(w, "<ListBucketResult>")
		for k := range s.objects {
			if strings.HasPrefix(k, "/bucket/"+r.URL.Query().Get("prefix")) {
				fmt.Fprintf(w, "<Contents><Key>x</Key><Size>%d</Size></Contents>", len(s.objects[k]))
			}
		}
		fmt.Fprint(w, "</ListBucketResult>")
	case s.objects[key] != nil:
		_, _ = w.Write(s.objects[key])
	default:
		http.NotFound(w, r)
	}
}

// unchunk takes AWS's framing off: sizes in hexadecimal, pieces, trailers.
func unchunk(b []byte) []byte {
	var out []byte
	for {
		line, rest, _ := bytes.Cut(b, []byte("\r\n"))
		size, _, _ := strings.Cut(string(line), ";")
		n, err := strconv.ParseInt(size, 16, 32)
		if err != nil || n == 0 || int(n)+2 > len(rest) {
			return out
		}
		out, b = append(out, rest[:n]...), rest[n+2:]
	}
}

// checkSignature is Signature Version 4 as its description has it, written
// without the library that is tested.
func checkSignature(r *http.Request, body []byte) error {
	fields := map[string]string{}
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	scope := strings.SplitN(fields["Credential"], "/", 2)
	if !ok || len(scope) != 2 || scope[0] != keyID || !strings.HasSuffix(scope[1], "/eu-central-1/s3/aws4_request") {
		return fmt.Errorf("unknown key or scope")
	}
	date := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", date)
	if err != nil || time.Since(at).Abs() > 5*time.Minute {
		return fmt.Errorf("bad date")
	}
	var headers strings.Builder
	for name := range strings.SplitSeq(fields["SignedHeaders"], ";") {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		headers.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	payload := r.Header.Get("X-Amz-Content-Sha256")
	if len(payload) == 64 && payload != hexSum(body) {
		return fmt.Errorf("the body has another hash")
	}
	query := r.URL.Query()
	pairs := []string{}
	for name, values := range query {
		for _, v := range values {
			pairs = append(pairs, awsEscape(name, false)+"="+awsEscape(v, false))
		}
	}
	slices.Sort(pairs)
	path, err := url.PathUnescape(strings.SplitN(r.RequestURI, "?", 2)[0])
	if err != nil {
		return err
	}
	canonical := strings.Join([]string{r.Method, awsEscape(path, true), strings.Join(pairs, "&"), headers.String(), fields["SignedHeaders"], payload}, "\n")
	toSign := strings.Join([]string{"AWS4-HMAC-SHA256", date, scope[1], hexSum([]byte(canonical))}, "\n")
	key := []byte("AWS4" + keySecret)
	for _, part := range []string{date[:8], "eu-central-1", "s3", "aws4_request", toSign} {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(part))
		key = m.Sum(nil)
	}
	if hex.EncodeToString(key) != fields["Signature"] {
		return fmt.Errorf("the signature is another one")
	}
	return nil
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func awsEscape(s string, path bool) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 || path && c == '/' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// issue makes an authority and a certificate for all names; the authority comes
// back as PEM.
func issue(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	caKey, key := newKey(t), newKey(t)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{leafDER, caDER}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
