// Package credential keeps secrets on the outside: it makes placeholders in
// their shape, finds placeholders and live secrets in what leaves and comes in,
// and attaches secrets to requests. It does no I/O.
package credential
