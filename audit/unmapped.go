package audit

// rest is what OCSF has no place for in the event's class.
func (j *writer) rest(e *Event, uid int) {
	endpoints := uid == classNetwork || uid == classHTTP || uid == classAPI || uid == classFinding
	if !endpoints {
		if uid != classDNS {
			j.text("host", e.Host)
			j.text("addr", e.Addr)
		}
		j.integerUnlessZero("port", int64(e.Port))
	} else if literal(e.Host) {
		j.text("host", e.Host)
		j.text("addr", e.Addr)
	}
	if uid != classNetwork && uid != classHTTP && uid != classAPI {
		j.text("method", e.Method)
		j.text("path", e.Path)
		j.integerUnlessZero("status", int64(e.Status))
	}
	if e.Verdict == "" {
		j.text("rule", e.Rule)
	}
	j.text("pos", e.Pos)
	j.text("id", e.ID)
	j.text("protocol", e.Protocol)
	j.text("operation", e.Operation)
	j.text("credential", e.Credential)
	j.text("model", e.Model)
	j.text("route", e.Route)
	j.integerUnlessZero("input_tokens", e.InputTokens)
	j.integerUnlessZero("output_tokens", e.OutputTokens)
	j.float("cost", e.Cost)
	if e.Estimated {
		j.key("estimated")
		j.b = append(j.b, "true"...)
	}
	j.integerUnlessZero("count", e.Count)
	j.launch(e)
}

func (j *writer) launch(e *Event) {
	j.text("policy", e.Policy)
	j.text("source", e.Source)
	j.text("digest", e.Digest)
	j.text("version", e.Version)
	j.text("command", e.Command)
	if len(e.Layers) > 0 {
		j.key("layers")
		j.b = append(j.b, '[')
		for i, l := range e.Layers {
			if i > 0 {
				j.b = append(j.b, ',')
			}
			j.open("")
			j.text("name", l.Name)
			j.key("enforced")
			if l.Enforced {
				j.b = append(j.b, "true"...)
			} else {
				j.b = append(j.b, "false"...)
			}
			j.text("mechanism", l.Mechanism)
			j.close()
		}
		j.b = append(j.b, ']')
	}
	j.texts("degraded", e.Degraded)
	j.texts("writers", e.Writers)
	j.text("service", e.Service)
	if e.ExitCode != nil {
		j.integer("exit_code", int64(*e.ExitCode))
	}
}
