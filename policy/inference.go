package policy

// Inference is every call of a model.
type Inference struct {
	// Routes are the providers, in the order in which they are tried for
	// requests to the inner name "inference.internal".
	Routes []Route `yaml:"routes" json:"routes,omitzero" tighten:"subset"`
	// Budget bounds one run. At 80 % of a number an event is recorded, at 100 %
	// further calls are refused.
	Budget Budget `yaml:"budget" json:"budget,omitzero"`
	// Prices are by model pattern; the longest pattern that fits counts. A
	// budget in money needs a price for every model that is allowed.
	Prices map[string]Price `yaml:"prices" json:"prices,omitzero" key:"pattern" tighten:"fixed"`
	// HardStop refuses when a conversation turns in circles.
	HardStop HardStop `yaml:"hard_stop" json:"hard_stop,omitzero"`
}

// Route is one provider of models. It stands for a network rule for its host
// and port, on which nothing but inference is then allowed.
type Route struct {
	// Name identifies the route. Absent: "inference.routes[N]".
	Name string `yaml:"name" json:"name,omitzero" is:"rule-name"`
	// Provider is the shape of its requests: openai-compatible (chat
	// completions, responses, completions, embeddings, models), anthropic
	// (messages), gemini (generateContent), or local (openai-compatible and
	// Ollama's own).
	Provider string `yaml:"provider" json:"provider,omitzero" enum:"openai-compatible,anthropic,gemini,local" required:"true"`
	// Host is the provider's host: a name or an address, without wildcards.
	Host string `yaml:"host" json:"host,omitzero" is:"host" required:"true"`
	// Port is its port. 0: 443, or 80 with plain.
	Port int `yaml:"port" json:"port,omitzero" max:"65535"`
	// Plain speaks HTTP without TLS to it; for servers of one's own. A route
	// with a credential cannot be plain.
	Plain bool `yaml:"plain" json:"plain,omitzero"`
	// Base is the path before the provider's own ("/api/v1"). Absent: "/v1" for
	// openai-compatible and local, none for the others, whose paths name their
	// version themselves.
	Base string `yaml:"base" json:"base,omitzero" is:"url-path"`
	// Models lists the models that may be used: "gpt-5*", "nousresearch/*".
	// Absent: any.
	Models []string `yaml:"models" json:"models,omitzero" is:"pattern" nonempty:"true"`
	// Rename gives the model to ask for instead of the one that was asked for.
	// Both must be allowed names: "models" is about the new one.
	Rename map[string]string `yaml:"rename" json:"rename,omitzero" nonempty:"true"`
	// Credential names the entry of "credentials" that is attached.
	Credential string `yaml:"credential" json:"credential,omitzero" is:"rule-name"`
	// MaxOutputTokens is the most that one request may ask for; what asks for
	// more, or does not say, is sent with this. 0: no limit.
	MaxOutputTokens Count `yaml:"max_output_tokens" json:"max_output_tokens,omitzero"`
	// RemoteFetch lets requests name URLs that the provider fetches (images,
	// files, remote MCP servers).
	RemoteFetch bool `yaml:"remote_fetch" json:"remote_fetch,omitzero"`
	// ServerTools lists types of tools that the provider runs itself
	// ("web_search*"). Absent: none.
	ServerTools []string `yaml:"server_tools" json:"server_tools,omitzero" is:"pattern" nonempty:"true"`
	// Headers lists request header fields to forward besides the usual ones.
	Headers []string `yaml:"headers" json:"headers,omitzero" is:"header-name" nonempty:"true"`
	Pos     Pos      `yaml:"-" json:"pos,omitzero"`
}

// Budget bounds what one run may use of models. 0 or absent: no limit.
type Budget struct {
	// Requests is the number of calls.
	Requests Count `yaml:"requests" json:"requests,omitzero" tighten:"limit"`
	// InputTokens is the number of tokens sent.
	InputTokens Count `yaml:"input_tokens" json:"input_tokens,omitzero" tighten:"limit"`
	// OutputTokens is the number of tokens received.
	OutputTokens Count `yaml:"output_tokens" json:"output_tokens,omitzero" tighten:"limit"`
	// Tokens is the number of both together.
	Tokens Count `yaml:"tokens" json:"tokens,omitzero" tighten:"limit"`
	// Money is in the unit of "prices".
	Money float64 `yaml:"money" json:"money,omitzero" tighten:"limit"`
	// RequestsPerMinute is the number of calls in any 60 seconds.
	RequestsPerMinute Count `yaml:"requests_per_minute" json:"requests_per_minute,omitzero" tighten:"limit"`
	// TokensPerMinute is the number of tokens in any 60 seconds.
	TokensPerMinute Count `yaml:"tokens_per_minute" json:"tokens_per_minute,omitzero" tighten:"limit"`
	// MoneyPerMinute is the money in any 60 seconds.
	MoneyPerMinute float64 `yaml:"money_per_minute" json:"money_per_minute,omitzero" tighten:"limit"`
}

// Price is for one million tokens.
type Price struct {
	// Input is for tokens sent.
	Input float64 `yaml:"input" json:"input,omitzero"`
	// CachedInput is for tokens sent that the provider had stored. 0: as input.
	CachedInput float64 `yaml:"cached_input" json:"cached_input,omitzero"`
	// Output is for tokens received.
	Output float64 `yaml:"output" json:"output,omitzero"`
}

// HardStop recognises in each request's conversation that the agent turns in
// circles. 0 switches a check off.
type HardStop struct {
	// ExactFailure is how often in a row the same tool call may fail.
	ExactFailure int `yaml:"exact_failure" json:"exact_failure,omitzero" tighten:"limit"`
	// NoProgress is how often in a row the same tool call may give the same
	// result.
	NoProgress int `yaml:"no_progress" json:"no_progress,omitzero" tighten:"limit"`
	// Action is refuse (the call is refused; the default) or stop (the run is
	// ended with exit 125).
	Action string `yaml:"action" json:"action,omitzero" enum:"refuse,stop" tighten:"higher"`
}

// Metrics are numbers about the run in Prometheus' text format.
type Metrics struct {
	// Socket is a Unix socket that serves them, with mode 0600. Absent: none.
	// It must lie outside every granted path.
	Socket Path `yaml:"socket" json:"socket,omitzero" is:"no-glob" tighten:"fixed"`
}

// Count is a number of things, written 500, 60k, 2M or 1G (powers of 1000).
type Count int64
