package policy

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
)

// passwdHome gives the user's home directory in the password file, or "".
// os/user would ask the C library, which a static binary must not.
func (o Options) passwdHome() string {
	if o.PasswdHome != "" {
		return o.PasswdHome
	}
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return ""
	}
	defer f.Close()
	return parsePasswd(f, o.Uid)
}

// parsePasswd finds the home directory of a user id in passwd(5) format.
func parsePasswd(r io.Reader, uid int) string {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) >= 7 && fields[2] == strconv.Itoa(uid) {
			return fields[5]
		}
	}
	return ""
}
