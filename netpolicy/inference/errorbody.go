package inference

import "github.com/hermes-wrap/hermes-wrap/netpolicy/strictjson"

// ErrorBody gives the members of an answer that has the client's library show
// what we say: the shape of the errors of its provider. code is a stable name,
// status the HTTP status.
func ErrorBody(family Provider, code, message string, status int) []strictjson.Member {
	text := strictjson.TextOf
	switch family {
	case Anthropic:
		return []strictjson.Member{
			{Name: "type", Value: text("error")},
			{Name: "error", Value: strictjson.ObjectOf(
				strictjson.Member{Name: "type", Value: text(anthropicError(status))},
				strictjson.Member{Name: "message", Value: text(message)},
			)},
		}
	case Gemini:
		return []strictjson.Member{{Name: "error", Value: strictjson.ObjectOf(
			strictjson.Member{Name: "code", Value: strictjson.IntOf(int64(status))},
			strictjson.Member{Name: "message", Value: text(message)},
			strictjson.Member{Name: "status", Value: text(geminiError(status))},
		)}}
	case Local:
		return []strictjson.Member{{Name: "error", Value: text(message)}}
	}
	return []strictjson.Member{{Name: "error", Value: strictjson.ObjectOf(
		strictjson.Member{Name: "message", Value: text(message)},
		strictjson.Member{Name: "type", Value: text(code)},
		strictjson.Member{Name: "param", Value: strictjson.Value{}},
		strictjson.Member{Name: "code", Value: text(code)},
	)}}
}

func anthropicError(status int) string {
	switch status {
	case 400:
		return "invalid_request_error"
	case 403:
		return "permission_error"
	}
	return "api_error"
}

func geminiError(status int) string {
	switch status {
	case 400:
		return "INVALID_ARGUMENT"
	case 403:
		return "PERMISSION_DENIED"
	}
	return "UNAVAILABLE"
}
