package proxy

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// RequireCurl gives curl's path. Without curl the test is skipped, which is a
// failure where everything must work.
func RequireCurl(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err == nil {
		return path
	}
	if os.Getenv("HERMES_MUST_WORK") == "1" {
		t.Fatal("curl is not installed")
	}
	t.Skip("curl is not installed")
	return ""
}

// curl runs curl with its connections to host:port captured.
func (w *world) curl(t *testing.T, host string, port int, args ...string) string {
	t.Helper()
	curl := RequireCurl(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, w.srv.Authority.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	_, door, err := net.SplitHostPort(w.door(host, port))
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{
		"--disable", "--silent", "--show-error", "--max-time", "20", "--noproxy", "*", "--cacert", ca,
		"--connect-to", fmt.Sprintf("%s:%d:127.0.0.1:%s", host, port, door), "--write-out", "\n%{http_version} %{http_code}",
	}, args...)
	cmd := exec.Command(curl, all...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("curl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// curl as it comes speaks to us over both versions of HTTP and reads denials.
func TestCurl(t *testing.T) {
	upload := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(upload, []byte(strings.Repeat("0123456789abcdef", 1<<17)), 0o600); err != nil {
		t.Fatal(err)
	}
	const url = "https://api.example.org"
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"get 1.1":         {[]string{"--http1.1", url + "/public/a"}, []string{`"uri":"/public/a"`, `"proto":"HTTP/1.1"`, "1.1 200"}},
		"get 2":           {[]string{"--http2", url + "/public/a"}, []string{`"uri":"/public/a"`, `"proto":"HTTP/2.0"`, "2 200"}},
		"head 1.1":        {[]string{"--http1.1", "--head", url + "/public/a"}, []string{"1.1 200"}},
		"denied 1.1":      {[]string{"--http1.1", url + "/secret"}, []string{`"error":"policy_denied"`, "1.1 403"}},
		"denied 2":        {[]string{"--http2", url + "/secret"}, []string{`"error":"policy_denied"`, "2 403"}},
		"foreign host":    {[]string{"--http1.1", "-H", "Host: denied.example", url + "/public/a"}, []string{`"error":"policy_denied"`, "1.1 403"}},
		"foreign host 2":  {[]string{"--http2", "-H", "Host: denied.example", url + "/public/a"}, []string{`"error":"policy_denied"`, "2 403"}},
		"upload 1.1":      {[]string{"--http1.1", "-T", upload, "-o", "/dev/null", url + "/public/up"}, []string{"1.1 200"}},
		"upload 2":        {[]string{"--http2", "-T", upload, "-o", "/dev/null", url + "/public/up"}, []string{"2 200"}},
		"chunked upload":  {[]string{"--http1.1", "-T", upload, "-H", "Transfer-Encoding: chunked", "-o", "/dev/null", url + "/public/up"}, []string{"1.1 200"}},
		"denied upload":   {[]string{"--http1.1", "-T", upload, "-H", "Expect:", url + "/secret"}, []string{`"error":"policy_denied"`, "1.1 403"}},
		"denied upload 2": {[]string{"--http2", "-T", upload, url + "/secret"}, []string{`"error":"policy_denied"`, "2 403"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testNetwork())
			w.serve("api.example.org", 443, &echo{})
			got := w.curl(t, "api.example.org", 443, c.args...)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("got %.500q, want %q in it", got, want)
				}
			}
			w.wantNoFault()
		})
	}
}

// curl that was told to use a proxy learns that it needs none.
func TestCurlWithProxySetting(t *testing.T) {
	w := newWorld(t, testNetwork())
	_, door, err := net.SplitHostPort(w.door("proxy.example", 80))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(RequireCurl(t), "--disable", "--silent", "--max-time", "10", "--proxy", "http://127.0.0.1:"+door,
		"http://api.example.org/public/a").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"error":"policy_denied"`) {
		t.Errorf("got %v %q, want a denial", err, out)
	}
}
