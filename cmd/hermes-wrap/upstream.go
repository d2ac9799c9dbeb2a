package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/proxy"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// houseSettings are the variables of the launcher that name the house's proxy.
// They may hold a password.
type houseSettings struct {
	HTTPS string `json:"https,omitempty"`
	HTTP  string `json:"http,omitempty"`
	No    string `json:"no,omitempty"`
}

// readHouse gives what network.upstream.proxy stands for.
func readHouse(u policy.Upstream, getenv func(string) string) houseSettings {
	switch u.Proxy {
	case "":
		return houseSettings{}
	case "env":
		either := func(name string) string {
			if v := getenv(name); v != "" {
				return v
			}
			return getenv(strings.ToLower(name))
		}
		return houseSettings{HTTPS: either("HTTPS_PROXY"), HTTP: either("HTTP_PROXY"), No: either("NO_PROXY")}
	default:
		return houseSettings{HTTPS: u.Proxy, HTTP: u.Proxy}
	}
}

// readClientCertificates reads the files of client certificates.
func readClientCertificates(u policy.Upstream, files map[string][]byte) error {
	for i, c := range u.Certificates {
		for key, f := range map[string]policy.Path{"cert": c.Cert, "key": c.Key} {
			b, err := os.ReadFile(f.Abs)
			if err != nil {
				return policy.Problem{Pos: f.Pos, Path: fmt.Sprintf("network.upstream.certificates[%d].%s", i, key), What: err.Error()}
			}
			files[f.Abs] = b
		}
	}
	return nil
}

// upstreamOf turns a policy and what was read for it into the proxy's way out.
func upstreamOf(u policy.Upstream, s proxySecrets) (out proxy.Upstream, err error) {
	if out.House, err = proxy.NewHouseProxy(s.House.HTTPS, s.House.HTTP, s.House.No); err != nil {
		return out, fmt.Errorf("network.upstream.proxy: %w", err)
	}
	for i, c := range u.Certificates {
		pair, err := proxy.NewClientCertificate(c.Hosts, s.Files[c.Cert.Abs], s.Files[c.Key.Abs])
		if err != nil {
			return out, policy.Problem{Pos: c.Pos, Path: fmt.Sprintf("network.upstream.certificates[%d]", i), What: err.Error()}
		}
		out.Certificates = append(out.Certificates, pair)
	}
	out.PerHost = u.ConnectionsPerHost
	return out, nil
}
