package main

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/hermes-wrap/hermes-wrap/policy"
)

// lookEvery is how often the files that hold secrets are looked at.
const lookEvery = time.Second

// secretWatch notices that secrets are due to be read again: files that changed,
// and sources with an interval.
type secretWatch struct {
	files map[watched]fs.FileInfo
	read  map[string]time.Time // by credential
}

// watched is a file of a credential: several may be read from one.
type watched struct{ credential, path string }

// watchSecrets has secrets read again when they are due, until the proxy ends.
func (r *reloader) watchSecrets() {
	w := secretWatch{files: map[watched]fs.FileInfo{}, read: map[string]time.Time{}}
	w.due(r.inForce().policy, time.Now())
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.px.gone:
			return
		case now := <-tick.C:
			for _, name := range w.due(r.inForce().policy, now) {
				r.px.askAgain(name)
			}
		}
	}
}

// due names the credentials that are due. What is seen for the first time counts
// as read.
func (w *secretWatch) due(p policy.Policy, now time.Time) (names []string) {
	for name, c := range p.Credentials {
		sources := []policy.CredentialSource{c.Source}
		if c.OAuth != nil && c.OAuth.ClientSecret != nil {
			sources = append(sources, *c.OAuth.ClientSecret)
		}
		changed := false
		for _, s := range sources {
			changed = w.changed(name, s.File.Abs) || changed
			changed = w.changed(name, s.Dotenv.Abs) || changed
		}
		last, known := w.read[name]
		switch {
		case !known:
			w.read[name] = now
		case changed, c.Refresh > 0 && now.Sub(last) >= time.Duration(c.Refresh):
			w.read[name] = now
			names = append(names, name)
		}
	}
	return names
}

// changed tells whether a file is another one than when it was last looked at for
// a credential. One that is not there is waited for.
func (w *secretWatch) changed(name, path string) bool {
	if path == "" {
		return false
	}
	st, err := os.Stat(path)
	at := watched{name, path}
	last, known := w.files[at]
	if err != nil {
		w.files[at] = nil
		return false
	}
	w.files[at] = st
	return known && (last == nil || !sameFile(last, st))
}

func sameFile(a, b fs.FileInfo) bool {
	x, okX := a.Sys().(*syscall.Stat_t)
	y, okY := b.Sys().(*syscall.Stat_t)
	return okX && okY && os.SameFile(a, b) && x.Size == y.Size && x.Mtim == y.Mtim && x.Ctim == y.Ctim
}
