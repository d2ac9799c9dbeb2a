package policy

// Credential is one secret that stays outside. Inside there is only a
// placeholder of the same shape; the proxy puts the secret in its place, over
// verified TLS, for the hosts named here and nobody else.
type Credential struct {
	// Source is where the secret comes from. It is read by the launcher.
	Source CredentialSource `yaml:"source" json:"source,omitzero" required:"true"`
	// Optional lets a run begin without the secret when its variable is not set
	// or its file is not there. A warning says so, no placeholder shows inside,
	// and requests that would get the secret are denied.
	Optional bool `yaml:"optional" json:"optional,omitzero"`
	// Expose is where the placeholder shows inside. Absent: nowhere; the
	// secret is attached all the same.
	Expose CredentialExposure `yaml:"expose" json:"expose,omitzero"`
	// Attach says how the secret is attached: bearer ("Authorization: Bearer"),
	// basic ("Authorization: Basic" with "user"), header (the field "header"),
	// query (the parameter "query"), json (the place "json" in the request's
	// JSON body), or sigv4 (the request is signed anew, see "aws").
	Attach string `yaml:"attach" json:"attach,omitzero" enum:"bearer,basic,header,query,json,sigv4" required:"true"`
	// Header is the field for attach: header.
	Header string `yaml:"header" json:"header,omitzero" is:"header-name"`
	// Prefix stands before the secret in the field: "token ".
	Prefix string `yaml:"prefix" json:"prefix,omitzero"`
	// User is the user name for attach: basic.
	User string `yaml:"user" json:"user,omitzero"`
	// Query is the parameter for attach: query.
	Query string `yaml:"query" json:"query,omitzero" is:"name"`
	// JSON is the JSON pointer (RFC 6901) for attach: json.
	JSON string `yaml:"json" json:"json,omitzero" is:"json-pointer"`
	// AWS completes attach: sigv4. The secret is then
	// "ACCESS_KEY_ID:SECRET_ACCESS_KEY" or, with a session token, a third part.
	AWS AWSScope `yaml:"aws" json:"aws,omitzero"`
	// OAuth makes the secret a refresh token: the proxy gets access tokens with
	// it and attaches those.
	OAuth *OAuth `yaml:"oauth" json:"oauth,omitzero"`
	// Hosts are the hosts that the secret is bound to, as in a rule.
	Hosts []Name `yaml:"hosts" json:"hosts,omitzero" is:"host" required:"true" nonempty:"true"`
	// Refresh is how often the source is read again. A file is also read
	// when it changed, and any source after the server answered 401. 0: only then.
	Refresh Duration `yaml:"refresh" json:"refresh,omitzero"`
	Pos     Pos      `yaml:"-" json:"pos,omitzero"`
}

// CredentialSource is where a secret comes from. Exactly one field is set, beside
// it "dotenv" with "env", and "key" with "file".
type CredentialSource struct {
	// Env is a variable of the launcher's environment.
	Env string `yaml:"env" json:"env,omitzero" is:"env-name"`
	// Dotenv is a file of NAME=VALUE lines that stands beside "env": the variable
	// is looked for there when the environment does not have it. Nothing in it is
	// expanded. It must be hidden, or lie outside every granted path.
	Dotenv Path `yaml:"dotenv" json:"dotenv,omitzero" is:"no-glob"`
	// File holds the secret; one final line end is dropped. It must be hidden,
	// or lie outside every granted path.
	File Path `yaml:"file" json:"file,omitzero" is:"no-glob"`
	// Key stands beside "file": the file has "KEY = VALUE" lines, as npm's
	// configuration has, and the secret is the value of this one.
	Key string `yaml:"key" json:"key,omitzero"`
	// Command prints the secret; the list is the program and its arguments. It
	// runs outside, without a shell, for at most 30 seconds.
	Command []string `yaml:"command" json:"command,omitzero" nonempty:"true"`
	// Keyring is "SERVICE/USER" in the desktop's keyring (Secret Service).
	Keyring string `yaml:"keyring" json:"keyring,omitzero" is:"keyring"`
	// Systemd is the name of a credential in $CREDENTIALS_DIRECTORY, see
	// systemd.exec(5).
	Systemd string `yaml:"systemd" json:"systemd,omitzero" is:"name"`
}

// CredentialExposure is where a placeholder shows inside.
type CredentialExposure struct {
	// Env is the variable that holds it. With attach: sigv4 its parts show in
	// three: "AWS" stands for AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
	// AWS_SESSION_TOKEN.
	Env string `yaml:"env" json:"env,omitzero" is:"env-name"`
	// Placeholder is its text. Absent: one is made in the shape of the secret,
	// with its length and the prefix of its kind ("sk-ant-api03-", "ghp_").
	Placeholder string `yaml:"placeholder" json:"placeholder,omitzero"`
}

// AWSScope is what a Signature Version 4 is for. Absent fields are taken from
// the client's own signature.
type AWSScope struct {
	// Region is the region ("eu-central-1").
	Region string `yaml:"region" json:"region,omitzero" is:"name"`
	// Service is the service ("s3").
	Service string `yaml:"service" json:"service,omitzero" is:"name"`
}

// OAuth is how access tokens are got (RFC 6749, section 6).
type OAuth struct {
	// TokenURL is the token endpoint; https. Requests from inside to it are
	// denied.
	TokenURL string `yaml:"token_url" json:"token_url,omitzero" is:"https-url" required:"true"`
	// ClientID identifies the client.
	ClientID string `yaml:"client_id" json:"client_id,omitzero"`
	// ClientSecret is the client's own secret, if it has one.
	ClientSecret *CredentialSource `yaml:"client_secret" json:"client_secret,omitzero"`
	// Scope limits the tokens; separated by spaces.
	Scope string `yaml:"scope" json:"scope,omitzero"`
}
