package proxy

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"
)

// keptGrant is a grant as it lies in the memory: an endpoint that gives another
// refresh token takes the old one no more, and a token that was given is looked
// for as long as the run lasts.
type keptGrant struct {
	Key     string    `json:"key"`
	Refresh string    `json:"refresh"`
	Access  string    `json:"access"`
	Until   time.Time `json:"until"`
	InBody  bool      `json:"in_body,omitempty"`
	Learnt  []string  `json:"learnt,omitempty"`
}

// lockedKept is what is kept of a grant.
func (g *grant) lockedKept(learnt []string) keptGrant {
	return keptGrant{Refresh: g.refresh, Access: g.access, Until: g.until, InBody: g.inBody, Learnt: learnt}
}

// keepTokens puts the tokens of a credential into the memory. Where they do not
// fit, those that are there stay.
func (s *Server) keepTokens(name string, k keptGrant) {
	m := s.Memory
	if m == nil {
		return
	}
	s.grants.mu.Lock()
	k.Key = s.grants.byName[name].key
	s.grants.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	all, err := m.lockedTokens()
	if err != nil {
		return
	}
	all[name] = k
	b, err := json.Marshal(all)
	if err != nil || len(b) > tokensRoom-4 {
		return
	}
	other := m.tokens.Load() ^ 1
	room := m.tokensOf(other)
	binary.NativeEndian.PutUint32(room, uint32(len(b)))
	clear(room[4+copy(room[4:], b):])
	m.tokens.Store(other)
}

// recallTokens goes on with the tokens of an earlier proxy.
func (s *Server) recallTokens() error {
	s.Memory.mu.Lock()
	all, err := s.Memory.lockedTokens()
	s.Memory.mu.Unlock()
	if err != nil {
		return err
	}
	v := s.rules().Credentials
	for name, k := range all {
		for _, text := range k.Learnt {
			v.Learn(name, text)
			s.Audit.Hide(text)
		}
		g := &grant{turn: make(chan struct{}, 1), refresh: k.Refresh, access: k.Access, until: k.Until, inBody: k.InBody}
		s.grants.mu.Lock()
		if s.grants.byName == nil {
			s.grants.byName = map[string]keyedGrant{}
		}
		s.grants.byName[name] = keyedGrant{k.Key, g} // unused where the source gives another secret now
		s.grants.mu.Unlock()
	}
	return nil
}

// tokensOf is one of the two copies.
func (m *Memory) tokensOf(which uint32) []byte {
	at := tokensAt + tokensRoom*int(which&1)
	return m.all[at : at+tokensRoom]
}

// lockedTokens gives what is kept, by credential.
func (m *Memory) lockedTokens() (map[string]keptGrant, error) {
	all := map[string]keptGrant{}
	room := m.tokensOf(m.tokens.Load())
	n := binary.NativeEndian.Uint32(room)
	if n == 0 {
		return all, nil
	}
	if n > tokensRoom-4 || json.Unmarshal(room[4:4+n], &all) != nil {
		return nil, errors.New("BUG: the run's memory of tokens is damaged") // its text is secret
	}
	return all, nil
}
