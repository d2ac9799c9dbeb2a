package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// wire is a line as far as it is read back.
type wire struct {
	Time     int64 `json:"time"`
	Class    *int  `json:"class_uid"`
	Action   int   `json:"action_id"`
	Message  string
	Metadata struct {
		Product struct {
			Name string `json:"name"`
		} `json:"product"`
		Original time.Time `json:"original_time"`
		Kind     Kind      `json:"event_code"`
		Writer   string    `json:"log_provider"`
		Run      string    `json:"correlation_uid"`
		Sequence uint64    `json:"sequence"`
	} `json:"metadata"`
	Rule struct {
		Name string `json:"name"`
	} `json:"firewall_rule"`
	Source      endpoint `json:"src_endpoint"`
	Destination endpoint `json:"dst_endpoint"`
	Evidences   []struct {
		Destination endpoint `json:"dst_endpoint"`
	} `json:"evidences"`
	Request struct {
		Method string `json:"http_method"`
		URL    struct {
			Path  string  `json:"path"`
			Query *string `json:"query_string"`
		} `json:"url"`
	} `json:"http_request"`
	Response struct {
		Code int `json:"code"`
	} `json:"http_response"`
	Query struct {
		Hostname string `json:"hostname"`
	} `json:"query"`
	Answers []struct {
		Rdata string `json:"rdata"`
	} `json:"answers"`
	Unmapped unmapped `json:"unmapped"`
}

type endpoint struct {
	Hostname string `json:"hostname"`
	IP       string `json:"ip"`
	Port     uint16 `json:"port"`
}

type unmapped struct {
	Host, Addr, Method, Path, Rule, Pos, ID, Protocol string
	Operation, Credential, Model, Route               string
	Port                                              uint16
	Status                                            int
	InputTokens                                       int64 `json:"input_tokens"`
	OutputTokens                                      int64 `json:"output_tokens"`
	Cost                                              float64
	Estimated                                         bool
	Count                                             int64
	Policy, Source, Digest, Version, Command, Service string
	Layers                                            []Layer
	Degraded, Writers                                 []string
	ExitCode                                          *int `json:"exit_code"`
	Prev, MAC                                         string
}

var errForeign = errors.New("no line of a record of hermes-wrap")

// Decode reads one line of a record.
func Decode(line []byte) (Event, error) {
	e, _, err := decode(line)
	return e, err
}

func decode(line []byte) (Event, wire, error) {
	var w wire
	var other *json.UnmarshalTypeError
	if err := json.Unmarshal(line, &w); errors.As(err, &other) {
		return Event{}, w, fmt.Errorf("read audit line: %w", errForeign)
	} else if err != nil {
		return Event{}, w, fmt.Errorf("read audit line: %w", err)
	}
	m, u := w.Metadata, w.Unmapped
	if w.Class == nil || m.Product.Name != product || m.Kind == "" {
		return Event{}, w, fmt.Errorf("read audit line: %w", errForeign)
	}
	e := Event{
		Time: m.Original, Run: m.Run, Writer: m.Writer, Sequence: m.Sequence, Kind: m.Kind, ID: u.ID, Reason: w.Message,
		Rule: cmpOr(w.Rule.Name, u.Rule), Pos: u.Pos, Protocol: u.Protocol,
		Operation: u.Operation, Credential: u.Credential, Model: u.Model, Route: u.Route,
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens, Cost: u.Cost, Estimated: u.Estimated, Count: u.Count,
		Policy: u.Policy, Source: u.Source, Digest: u.Digest, Version: u.Version, Command: u.Command,
		Layers: u.Layers, Degraded: u.Degraded, Writers: u.Writers, Service: u.Service, ExitCode: u.ExitCode,
	}
	e.Verdict = map[int]Verdict{1: Allow, 2: Deny}[w.Action]
	w.place(&e)
	return e, w, nil
}

// place reads where the event was about, which stands elsewhere in each class.
func (w wire) place(e *Event) {
	u, to := w.Unmapped, w.Destination
	if len(w.Evidences) > 0 {
		to = w.Evidences[0].Destination
	}
	e.Host, e.Addr, e.Port = to.Hostname, to.IP, to.Port
	if u.Host != "" {
		e.Host, e.Addr = u.Host, u.Addr
	}
	if e.Kind == KindInbound {
		e.Addr = cmpOr(u.Addr, w.Source.IP)
	}
	switch *w.Class {
	case classDNS:
		e.Host, e.Port = w.Query.Hostname, u.Port
		if len(w.Answers) > 0 {
			e.Addr = w.Answers[0].Rdata
		}
	case classBase, classLifecycle, classError:
		e.Host, e.Addr, e.Port = u.Host, u.Addr, u.Port
	}
	e.Method, e.Path = w.Request.Method, w.Request.URL.Path
	if q := w.Request.URL.Query; q != nil {
		e.Path += "?" + *q
	}
	e.Method, e.Path = cmpOr(e.Method, u.Method), cmpOr(e.Path, u.Path)
	if e.Status = w.Response.Code; e.Status == 0 {
		e.Status = u.Status
	}
}
