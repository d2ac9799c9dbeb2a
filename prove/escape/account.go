package escape

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is who a run belongs to: "user", an ordinary user, or "root".
type account struct {
	Kind string
	Name string
	UID  int
	GID  int
	// Dir is where the directories of its runs are made.
	Dir string
}

// accounts gives those that runs are made as here: root runs as both, an
// ordinary user as itself.
func accounts(ordinary string) ([]account, error) {
	if os.Getuid() != 0 {
		u, err := user.Current()
		if err != nil {
			return nil, err
		}
		a, err := accountOf("user", u)
		return []account{a}, err
	}
	var out []account
	if ordinary != "" {
		u, err := user.Lookup(ordinary)
		if err != nil {
			return nil, err
		}
		a, err := accountOf("user", u)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	root, err := user.LookupId("0")
	if err != nil {
		return nil, err
	}
	a, err := accountOf("root", root)
	return append(out, a), err
}

func accountOf(kind string, u *user.User) (account, error) {
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return account{}, fmt.Errorf("parse the account's ids: %w", err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return account{}, fmt.Errorf("parse the account's ids: %w", err)
	}
	return account{Kind: kind, Name: u.Username, UID: uid, GID: gid, Dir: u.HomeDir}, nil
}

// credential is nil where a process is of that account anyway.
func (a account) credential() *syscall.Credential {
	if os.Getuid() == a.UID {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}
}
