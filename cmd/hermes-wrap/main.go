package main

import (
	_ "github.com/bmatcuk/doublestar/v4"
	_ "github.com/containerd/console"
	_ "github.com/google/nftables"
	_ "github.com/google/nftables/expr"
	_ "github.com/landlock-lsm/go-landlock/landlock"
	_ "github.com/moby/profiles/seccomp"
	_ "github.com/opencontainers/cgroups/manager"
	_ "github.com/opencontainers/cgroups/systemd"
	_ "github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter"
	_ "github.com/seccomp/libseccomp-golang"
	_ "github.com/spf13/cobra"
	_ "github.com/vishvananda/netlink"
	_ "go.yaml.in/yaml/v4"
	_ "golang.org/x/net/dns/dnsmessage"
	_ "golang.org/x/net/http2"
	_ "golang.org/x/net/idna"
	_ "golang.org/x/sys/unix"
	_ "kernel.org/pub/linux/libs/security/libcap/psx"
)

func main() {}
