// Package inference judges calls of models: it reads the requests of the
// providers in use, decides by model and by what they ask of the provider,
// counts what answers used, and recognises conversations that turn in circles.
// It does no I/O.
//
// A request becomes facts (what it asks for, whoever serves it), the facts are
// compared with each route that may serve it, and the outcome is a Call with
// one Target a route. What a target sends is written anew from what was judged.
// Names that no list here knows are treated as something that the provider does
// by itself, and so are denied unless the policy names them.
package inference
