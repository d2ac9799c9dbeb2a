package inference

import "strings"

// The names of a request's members that are understood, by operation. They
// steer how a model writes, or are read by this package; none has the provider
// do anything else. What stands in no list counts as a server-side tool of that
// name.
var (
	openAINames = words(`model messages prompt suffix stream stream_options temperature top_p top_k min_p top_a n stop
		max_tokens max_completion_tokens min_tokens presence_penalty frequency_penalty repetition_penalty length_penalty
		logit_bias logprobs top_logprobs prompt_logprobs user seed best_of echo tools tool_choice parallel_tool_calls functions
		function_call response_format reasoning reasoning_effort include_reasoning reasoning_format reasoning_split verbosity
		modalities audio prediction service_tier store metadata safety_identifier prompt_cache_key prompt_cache_retention
		cache_control thinking thinking_budget enable_thinking chat_template_kwargs guided_json guided_regex guided_choice
		guided_grammar structured_outputs grammar json_schema ignore_eos skip_special_tokens spaces_between_special_tokens
		stop_token_ids include_stop_str_in_output use_beam_search typical_p mirostat mirostat_tau mirostat_eta cache_prompt
		keep_alive usage transforms provider safe_prompt random_seed think add_generation_prompt session_id
		tags do_sample request_id tool_stream user_id vl_high_resolution_images prompt_mode citation_options
		disable_tool_validation prompt_truncate_len context_length_exceeded_behavior raw_output perf_metrics_in_response
		return_token_ids`)
	responsesNames = words(`model input instructions stream stream_options temperature top_p top_logprobs max_output_tokens
		max_tool_calls tools tool_choice parallel_tool_calls reasoning text truncation store include metadata user
		safety_identifier prompt_cache_key prompt_cache_retention service_tier client_metadata context_management
		previous_response_id conversation seed provider`)
	embeddingNames = words(`model input encoding_format dimensions user input_type truncate provider task normalized
		truncate_prompt_tokens keep_alive options`)
	messagesNames = words(`model messages system max_tokens stream temperature top_p top_k stop_sequences tools tool_choice
		metadata thinking service_tier output_config output_format context_management cache_control speed inference_geo`)
	geminiNames = words(`model contents content systemInstruction tools toolConfig safetySettings generationConfig
		cachedContent labels serviceTier taskType title outputDimensionality autoTruncate requests generateContentRequest
		embedContentConfig`)
	ollamaNames = words(`model messages prompt suffix images format options system template stream raw keep_alive context
		think tools input truncate dimensions logprobs top_logprobs verbose`)
)

// neverNames name another model, another server or another way to get the
// answer. No policy allows them.
var neverNames = words(`models model_id model_name modelid fallback fallbacks fallback_models route preset deployment
	deployment_id deploymentid engine extra_body extra_query extra_headers api_base base_url api_key api_version model_list
	model_info mock_response background webhook webhook_url webhooks callback callback_url callbacks callbackurl prompt_id
	custom_llm_provider litellm_params proxy`)

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// names gives the list for an operation.
func (o operation) names() map[string]bool {
	switch o {
	case opChat, opCompletions:
		return openAINames
	case opResponses:
		return responsesNames
	case opEmbeddings:
		return embeddingNames
	case opMessages, opCountTokens:
		return messagesNames
	case opGenerate, opGeminiCount, opEmbed, opBatchEmbed:
		return geminiNames
	default:
		return ollamaNames
	}
}
