package policy

import (
	"cmp"
	"fmt"
	"strings"
)

// Docker lets the sandbox run containers of a container engine of the host
// (Docker, or what speaks its API), through the proxy, which judges each request
// and writes it anew. The zero value lets nothing through: there is no socket.
type Docker struct {
	// Socket is the engine's. It is never shown inside. Absent: /var/run/docker.sock.
	Socket Path `yaml:"socket" json:"socket,omitzero" is:"no-glob" tighten:"fixed"`
	// Images lists what containers may be made of: "python:3.12*". Names are
	// compared without "docker.io/library/", and one without a tag has the tag
	// "latest". "*" stands for any run of characters of a tag or of one part of a
	// name. Required.
	Images []Name `yaml:"images" json:"images,omitzero" is:"image" tighten:"subset"`
	// Pull lets the engine fetch these images. Otherwise they must be there.
	Pull bool `yaml:"pull" json:"pull,omitzero" tighten:"lower"`
	// MaxContainers bounds the containers of the run that exist at a time. 0: 4.
	MaxContainers int `yaml:"max_containers" json:"max_containers,omitzero" max:"100" tighten:"fixed"`
	// Memory is what each container may use at most, and gets when it asks for
	// nothing (bytes). 0: 2G.
	Memory Size `yaml:"memory" json:"memory,omitzero" tighten:"fixed"`
	// CPUs is the same for processors. 0: 2.
	CPUs int `yaml:"cpus" json:"cpus,omitzero" max:"1024" tighten:"fixed"`
	// Pids is the same for processes and threads. 0: 256.
	Pids int `yaml:"pids" json:"pids,omitzero" max:"100000" tighten:"fixed"`
}

// defaultDockerSocket is where Docker listens.
const defaultDockerSocket = "/var/run/docker.sock"

// Enabled tells whether the policy asks for an engine at all.
func (d Docker) Enabled() bool { return len(d.Images) > 0 }

// SocketPath is the engine's socket on the host.
func (d Docker) SocketPath() string { return cmp.Or(d.Socket.Abs, defaultDockerSocket) }

// Containers is how many containers there may be at a time.
func (d Docker) Containers() int { return cmp.Or(d.MaxContainers, 4) }

// MemoryLimit is what one container may use (bytes).
func (d Docker) MemoryLimit() int64 { return int64(cmp.Or(d.Memory, 2<<30)) }

// CPULimit is how many processors one container may use.
func (d Docker) CPULimit() int { return cmp.Or(d.CPUs, 2) }

// PidsLimit is how many processes and threads one container may have.
func (d Docker) PidsLimit() int { return cmp.Or(d.Pids, 256) }

// docker refuses a section without images: what it would allow is nothing that
// anybody wrote down. An empty list closes the engine.
func (j *judging) docker() {
	const path = "network.docker"
	_, written := j.policy.Where[path]
	if _, images := j.policy.Where[path+".images"]; written && !images {
		j.refuse(j.policy.Where[path], path+".images", "missing", `list what containers may be made of: images: ["python:3.12*"]`)
	}
}

// dockered compares with the floor, which lists what may be.
func (f *flooring) dockered(d Docker) {
	const path = "network.docker"
	if !f.layer.has(path) || !d.Enabled() {
		return
	}
	fl := f.layer.pol.Network.Docker
	f.texts(path+".images", fl.Images, d.Images, func(a, b Name) bool { return a.Text == b.Text })
	pos := d.Images[0].Pos
	for what, above := range map[string]bool{
		"socket": d.SocketPath() != fl.SocketPath(), "pull": d.Pull && !fl.Pull, "max_containers": d.Containers() > fl.Containers(),
		"memory": d.MemoryLimit() > fl.MemoryLimit(), "cpus": d.CPULimit() > fl.CPULimit(), "pids": d.PidsLimit() > fl.PidsLimit(),
	} {
		if above {
			f.refuse(pos, path+"."+what, "is more than the floor allows")
		}
	}
}

// checkImage refuses what stands for no image, or for any.
func checkImage(s string) (what, hint string) {
	const example = `a name with a tag or a digest: "python:3.12*", "ghcr.io/acme/tools:1"`
	first, _, parts := strings.Cut(s, "/")
	name, _, _ := strings.Cut(s[strings.LastIndexByte(s, '/')+1:], ":")
	switch {
	case parts && strings.Contains(first, "*"), strings.HasPrefix(name, "*"):
		return fmt.Sprintf("%q stands for images that nobody named", s), example
	case strings.Contains(s, "//"), strings.Contains(s, ".."), strings.HasSuffix(s, "/"), strings.HasSuffix(s, ":"):
		return fmt.Sprintf("%q is not the name of an image", s), example
	case strings.HasPrefix(s, "sha256:"):
		return fmt.Sprintf("%q has no name", s), example
	}
	return "", ""
}
