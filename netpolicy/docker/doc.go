// Package docker judges requests to the API of a container engine. It is pure:
// the package proxy carries what it allows. What the engine is sent is never what
// the client wrote, but what was judged, written anew: the path from an
// allow-list of endpoints, parameters and fields of bodies from lists of their
// own. The zero Set refuses everything.
//
// A container is the run's own when it has the run's label, which this package
// adds to what it lets be made and which nobody inside can set. The engine is
// asked for it with each request, so nothing has to be remembered.
package docker
