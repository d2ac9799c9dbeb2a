package sandbox

import (
	"fmt"
	"strings"
)

// etcFiles are the files of /etc that say where one is; they are made anew, so
// that nothing of the host's users, names or resolvers shows.
func etcFiles(h Host, hostname, home, shell string, uid, gid int) map[string]string {
	user := h.User
	if uid == 0 {
		user = "root"
	}
	passwd := "root:x:0:0:root:/root:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group := "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"
	if uid == 0 {
		passwd = fmt.Sprintf("root:x:0:0:root:%s:%s\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", home, shell)
	} else {
		passwd += fmt.Sprintf("%s:x:%d:%d:%s:%s:%s\n", user, uid, gid, user, home, shell)
		if gid != 0 {
			group += fmt.Sprintf("%s:x:%d:\n", user, gid)
		}
	}
	return map[string]string{
		"/etc/passwd":        passwd,
		"/etc/group":         group,
		"/etc/hosts":         fmt.Sprintf("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t%s\n", hostname),
		"/etc/hostname":      hostname + "\n",
		"/etc/resolv.conf":   fmt.Sprintf("nameserver %s\noptions timeout:2 attempts:2\n", resolverV4),
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
		// A random-looking but constant id: it must not tell hosts apart.
		"/etc/machine-id": strings.Repeat("0", 31) + "1\n",
	}
}

// bundlePath is where the merged certificate bundle lies inside.
const bundlePath = "/run/hermes-wrap/ca-bundle.pem"

// bundlePlaces are where systems and programs look for it.
var bundlePlaces = []string{
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/ssl/cert.pem",
	"/etc/ssl/ca-bundle.pem",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/pki/tls/cert.pem",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/var/lib/ca-certificates/ca-bundle.pem",
}
