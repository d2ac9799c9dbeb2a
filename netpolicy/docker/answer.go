package docker

import (
	"errors"
	"net/http"
	"strings"

	"github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"
)

// errAnswer is an answer of the engine that cannot be read.
var errAnswer = errors.New("the engine's answer is not what it should be")

// Owned reads what the engine says of a container and gives its whole identifier,
// if the run made it.
func (s *Set) Owned(answer []byte) (id string, err error) {
	v, err := strictjson.Parse(answer)
	if err != nil {
		return "", errAnswer
	}
	id = v.Get("Id").Text()
	if !isHex(id, 64) {
		return "", errAnswer
	}
	if !v.Get("Config").Get("Labels").Get(Label).IsString(s.run) {
		return "", NotOurs()
	}
	return id, nil
}

// NotOurs is the refusal of what this run did not make, whether it is there or
// not: what others have is none of the sandbox's business.
func NotOurs() error {
	return &Refused{http.StatusNotFound, "No such container: this run made none that is called so"}
}

// ExecOf gives the container that a command runs in.
func (s *Set) ExecOf(answer []byte) (container string, err error) {
	v, err := strictjson.Parse(answer)
	if err != nil {
		return "", errAnswer
	}
	if container = v.Get("ContainerID").Text(); !isHex(container, 64) {
		return "", errAnswer
	}
	return container, nil
}

// Count gives how many containers a list has.
func Count(answer []byte) (int, error) {
	v, err := strictjson.Parse(answer)
	if err != nil || v.Kind() != strictjson.Array {
		return 0, errAnswer
	}
	return len(v.Items()), nil
}

// Left gives the identifiers of a run's containers in a list.
func Left(answer []byte, run string) (ids []string, err error) {
	v, err := strictjson.Parse(answer)
	if err != nil || v.Kind() != strictjson.Array {
		return nil, errAnswer
	}
	for _, c := range v.Items() {
		// A list may not be cut down as it was asked to be.
		if id := c.Get("Id").Text(); isHex(id, 64) && c.Get("Labels").Get(Label).IsString(run) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Cut takes out of an answer what is not for the sandbox.
func (s *Set) Cut(k Kind, answer []byte) ([]byte, error) {
	v, err := strictjson.Parse(answer)
	if err != nil {
		return nil, errAnswer
	}
	switch k {
	case Version:
		v = only(v, "Version", "ApiVersion", "MinAPIVersion", "Os", "Arch")
	case Info:
		v = only(v, "ServerVersion", "OSType", "Architecture", "NCPU", "MemTotal", "Driver", "CgroupDriver", "CgroupVersion")
	case Images:
		if v.Kind() != strictjson.Array {
			return nil, errAnswer
		}
		v = s.listed(v)
	}
	return v.Append(nil), nil
}

func only(v strictjson.Value, names ...string) strictjson.Value {
	var out []strictjson.Member
	for _, name := range names {
		if m := v.Get(name); m.Kind() == strictjson.String || m.Kind() == strictjson.Number {
			out = append(out, strictjson.Member{Name: name, Value: m})
		}
	}
	return strictjson.ObjectOf(out...)
}

// listed keeps the images that the policy lists, under the names that it lists.
func (s *Set) listed(v strictjson.Value) strictjson.Value {
	var out []strictjson.Value
	for _, image := range v.Items() {
		var tags []strictjson.Value
		for _, tag := range image.Get("RepoTags").Items() {
			if _, err := s.image(tag.Text()); err == nil && !strings.HasPrefix(tag.Text(), "<none>") {
				tags = append(tags, tag)
			}
		}
		if len(tags) > 0 {
			out = append(out, image.Without("RepoDigests").With("RepoTags", strictjson.ListOf(tags...)))
		}
	}
	return strictjson.ListOf(out...)
}
