package proxy

// writeModels tells what the run used of models, and what it may.
func (s *Server) writeModels(x *exposition) {
	used, limit := s.Models(), s.rules().Inference.Budget()
	x.counter("hermes_wrap_model_requests_total", "Requests sent to providers of models.", used.Requests)
	x.family("hermes_wrap_model_tokens_total", "counter", "Tokens that calls of models used, as the providers said or as estimated.")
	x.sample("hermes_wrap_model_tokens_total", `{direction="input"}`, float64(used.Input))
	x.sample("hermes_wrap_model_tokens_total", `{direction="output"}`, float64(used.Output))
	x.family("hermes_wrap_model_cost_total", "counter", "What calls of models cost by the prices of the policy.")
	x.sample("hermes_wrap_model_cost_total", "", used.Money)
	x.family("hermes_wrap_model_budget_limit", "gauge", "The budget for models; numbers per minute are left out.")
	for _, b := range []struct {
		name  string
		limit float64
	}{
		{"requests", float64(limit.Requests)},
		{"input_tokens", float64(limit.InputTokens)},
		{"output_tokens", float64(limit.OutputTokens)},
		{"tokens", float64(limit.Tokens)},
		{"money", limit.Money},
	} {
		if b.limit > 0 {
			x.sample("hermes_wrap_model_budget_limit", `{budget="`+b.name+`"}`, b.limit)
		}
	}
}
