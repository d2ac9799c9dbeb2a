// Package secret reads secrets from where the user keeps them: the
// environment, files, commands, the desktop's keyring, systemd's credentials.
// Only the launcher does so.
package secret
