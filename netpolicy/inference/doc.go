// Package inference judges calls of models: it reads the requests of the
// providers in use, decides by model and by what they ask of the provider,
// counts what answers used, and recognises conversations that turn in circles.
// It does no I/O.
package inference
