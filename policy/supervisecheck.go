package policy

import (
	"cmp"
	"fmt"
	"slices"
)

// reserved are names that the log and "after" use for something else.
var reserved = []string{"main", "hermes-wrap"}

// supervise checks what services say about each other.
func (j *judging) supervise() {
	s := j.policy.Supervise
	j.restarts("supervise", Pos{}, s.Backoff, s.BackoffMax, s.RestartStatus, s.FatalStatus)
	for _, name := range sortedKeys(s.Services) {
		v, path := s.Services[name], "supervise.services."+name
		if slices.Contains(reserved, name) {
			j.refuse(v.Pos, path, fmt.Sprintf("the name %q is taken", name), "choose another name")
		}
		j.restarts(path, v.Pos, v.Backoff, v.BackoffMax, v.RestartStatus, v.FatalStatus)
		for _, a := range v.After {
			if _, known := s.Services[a.Text]; !known && a.Text != "main" {
				hint := `"main" is the command; the others stand in supervise.services`
				if near := nearest(a.Text, append(sortedKeys(s.Services), "main")); near != "" {
					hint = fmt.Sprintf("did you mean %q?", near)
				}
				j.refuse(a.Pos, path+".after", fmt.Sprintf("there is no service %q", a.Text), hint)
			}
		}
		if slices.Contains(j.before(name, nil), name) {
			j.refuse(v.Pos, path+".after", "it would have to be up before it starts: the services come after each other in a circle", "remove one of them from after")
		}
	}
}

// restarts checks the keys that the command and services share.
func (j *judging) restarts(path string, pos Pos, backoff, most Duration, restart, fatal []int) {
	at := func(key string) Pos { return cmp.Or(j.policy.Where[path+key], pos) }
	if backoff > most && most > 0 {
		j.refuse(at(".backoff_max"), path+".backoff_max", "is shorter than the first pause", "raise it, or lower backoff")
	}
	for _, code := range restart {
		if slices.Contains(fatal, code) {
			j.refuse(at(".restart_status"), path+".restart_status", fmt.Sprintf("%d is in fatal_status too", code), "remove it from one of the two")
		}
	}
}

// before lists what must be up before a service starts.
func (j *judging) before(name string, found []string) []string {
	for _, a := range j.policy.Supervise.Services[name].After {
		if !slices.Contains(found, a.Text) {
			found = j.before(a.Text, append(found, a.Text))
		}
	}
	return found
}
