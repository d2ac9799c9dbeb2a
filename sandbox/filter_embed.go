package sandbox

import "embed"

// The filters of the usual specs, compiled ahead because libseccomp needs
// longer than the rest of a launch. TestEmbeddedFilters proves that they are
// what a fresh compile gives, and writes them with -update.
//
//go:generate go test -run TestEmbeddedFilters -update .
//go:embed filters
var filterFiles embed.FS

// filterEmbedded gives the filter compiled ahead for a spec, if there is one.
func filterEmbedded(s FilterSpec) ([]byte, bool) {
	if (len(s.Allow) > 0 || len(s.Deny) > 0) && !s.isProxy() {
		return nil, false
	}
	raw, err := filterFiles.ReadFile("filters/" + filterFile(filterNative, s))
	return raw, err == nil
}

// filterFile names the embedded filter of a spec.
func filterFile(arch string, s FilterSpec) string {
	if s.isProxy() {
		return arch + "-proxy.bpf"
	}
	name := arch + "-base"
	if s.UserNamespaces {
		name += "-userns"
	}
	if s.Ptrace {
		name += "-ptrace"
	}
	return name + ".bpf"
}
