package policy

import (
	"strings"
	"testing"
)

func TestDocker(t *testing.T) {
	for _, c := range []struct{ name, section, want string }{
		{"images", `{images: ["python:3.12*", "ghcr.io/acme/tools:1"], pull: true}`, ""},
		{"closed", `{images: []}`, ""},
		{"nothing", `{}`, "network.docker: is empty"},
		{"no images", `{pull: true}`, "network.docker.images: missing"},
		{"any image", `{images: ["*"]}`, "network.docker.images[0]"},
		{"any image of a registry", `{images: ["ghcr.io/*:1"]}`, "stands for images that nobody named"},
		{"any registry", `{images: ["*/python:3"]}`, "network.docker.images[0]"},
		{"an identifier", `{images: ["sha256:abc"]}`, "has no name"},
		{"upper case", `{images: ["Python:3"]}`, "network.docker.images[0]"},
		{"a typo", `{image: ["python:3"]}`, "unknown key"},
		{"a negative bound", `{images: ["python:3"], pids: -1}`, "network.docker.pids"},
		{"host mounts", `{images: ["python:3"], mounts: [/]}`, "unknown key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := newWorld(t).load("version: 1\nnetwork: {docker: " + c.section + "}\n")
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v, want it accepted", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			case c.name == "closed" && p.Network.Docker.Enabled():
				t.Error("an empty list opens the engine")
			}
		})
	}
}

func TestDockerDefaults(t *testing.T) {
	var d Docker
	if d.Enabled() || d.SocketPath() != "/var/run/docker.sock" || d.Containers() != 4 || d.MemoryLimit() != 2<<30 || d.CPULimit() != 2 || d.PidsLimit() != 256 {
		t.Errorf("got %+v", d)
	}
}
