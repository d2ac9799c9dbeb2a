package audit

import (
	"net/netip"
	"slices"
	"strings"
)

// ocsfVersion is the version of the Open Cybersecurity Schema Framework that
// lines follow. Later versions of 1.x read them too.
const ocsfVersion = "1.5.0"

// product is the name under which lines are found.
const product = "hermes-wrap"

// class says what an event is in OCSF.
type class struct {
	category, uid, activity int
	// name is the activity's where the schema has none for it (99).
	name string
}

// Classes of OCSF that the record uses. A run is an application that starts and
// stops: OCSF's process activity is about one process of a host, and those
// inside have numbers that mean nothing outside.
const (
	classBase      = 0
	classFinding   = 2004
	classNetwork   = 4001
	classHTTP      = 4002
	classDNS       = 4003
	classLifecycle = 6002
	classAPI       = 6003
	classError     = 6008
)

const activityOther = 99

func lifecycle(activity int, name string) class { return class{6, classLifecycle, activity, name} }

// classOf chooses the class and the activity of an event.
func classOf(e *Event) class {
	switch e.Kind {
	case KindLaunch:
		return lifecycle(3, "")
	case KindExit:
		return lifecycle(4, "")
	case KindReload:
		return lifecycle(activityOther, "Reload")
	case KindService:
		return serviceClass(e.Operation)
	case KindControl:
		return lifecycle(activityOther, "Control")
	case KindProxy:
		return lifecycle(activityOther, "Proxy")
	case KindName:
		if e.Verdict == Deny {
			return class{4, classDNS, 1, ""}
		}
		return class{4, classDNS, 6, ""}
	case KindConnection, KindAddress:
		if e.Verdict == Deny {
			return class{4, classNetwork, 5, ""}
		}
		return class{4, classNetwork, 1, ""}
	case KindInbound:
		return class{4, classNetwork, map[Verdict]int{Deny: 5, Allow: 7, "": 4}[e.Verdict], ""}
	case KindUpstream:
		return class{4, classNetwork, 4, ""}
	case KindRequest:
		if e.Operation != "" {
			return class{6, classAPI, activityOther, "Call"}
		}
		return httpClass(e.Method)
	case KindInference:
		return class{6, classAPI, activityOther, "Inference"}
	case KindSecret, KindBudget:
		return class{2, classFinding, 1, ""}
	case KindFault, KindDropped:
		return class{6, classError, 1, ""}
	}
	return class{0, classBase, activityOther, string(e.Kind)}
}

// serviceClass is the life of a service: it is started, ends and starts again
// like an application.
func serviceClass(operation string) class {
	switch operation {
	case "start":
		return lifecycle(3, "")
	case "exit":
		return lifecycle(4, "")
	case "restart":
		return lifecycle(5, "")
	case "":
		operation = "Unknown"
	}
	return lifecycle(activityOther, operation)
}

func httpClass(method string) class {
	methods := []string{"", "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE", "PATCH"}
	for i, m := range methods[1:] {
		if method == m {
			return class{4, classHTTP, i + 1, ""}
		}
	}
	if method == "" {
		method = "Unknown"
	}
	return class{4, classHTTP, activityOther, method}
}

// The severities of OCSF that are used.
const (
	informational = 1
	low           = 2
	medium        = 3
	high          = 4
)

func severityOf(e *Event) int {
	switch {
	case e.Kind == KindSecret || e.Kind == KindFault:
		return high
	case e.Kind == KindDropped || e.Kind == KindBudget || e.Kind == KindProxy || len(e.Degraded) > 0 || e.Kind == KindService && e.Operation == "give up":
		return medium
	case e.Verdict == Deny || e.Kind == KindUpstream || e.Kind == KindService && statusOf(e) == 2 || e.Kind == KindInbound && e.Verdict == "":
		return low
	}
	return informational
}

// failures are what happens to a service that does not do as it should.
var failures = []string{"give up", "unhealthy", "kill"}

// statusOf is 1 for success and 2 for failure; a new finding is 1 as well.
func statusOf(e *Event) int {
	switch {
	case e.Kind == KindSecret || e.Kind == KindBudget:
		return 1
	case e.Verdict == Deny || e.Kind == KindUpstream || e.Kind == KindFault, e.Kind == KindService && slices.Contains(failures, e.Operation), e.ExitCode != nil && *e.ExitCode != 0:
		return 2
	}
	return 1
}

// appendEvent appends an event as the beginning of a line: the object "unmapped"
// is left open, so that the chain can add its own to it.
func appendEvent(b []byte, e *Event, version string) []byte {
	c := classOf(e)
	j := writer{b}
	j.open("")
	j.integer("time", e.Time.UnixMilli())
	j.integer("class_uid", int64(c.uid))
	j.integer("category_uid", int64(c.category))
	j.integer("activity_id", int64(c.activity))
	j.text("activity_name", c.name)
	j.integer("type_uid", int64(c.uid*100+c.activity))
	j.integer("severity_id", int64(severityOf(e)))
	j.integer("status_id", int64(statusOf(e)))
	j.text("message", e.Reason)
	j.metadata(e, version)
	j.control(e)
	switch c.uid {
	case classNetwork, classHTTP:
		j.network(e)
		j.request(e, c.uid == classHTTP)
	case classDNS:
		j.dns(e)
	case classAPI:
		j.api(e)
	case classFinding:
		j.finding(e)
	case classLifecycle:
		j.open("app")
		j.text("name", product)
		j.text("vendor_name", product)
		j.text("version", version)
		j.close()
	}
	j.open("unmapped")
	j.rest(e, c.uid)
	return j.b
}

func (j *writer) metadata(e *Event, version string) {
	j.open("metadata")
	j.text("version", ocsfVersion)
	j.open("product")
	j.text("name", product)
	j.text("vendor_name", product)
	j.text("version", version)
	j.close()
	j.key("uid")
	j.b = append(j.b, '"')
	j.b = appendText(j.b, e.Run)
	j.b = append(append(j.b, '-'), e.Writer...)
	j.b = append(append(j.number('-', e.Sequence), '"'), `,"original_time":"`...)
	j.b = append(e.Time.AppendFormat(j.b, rfc3339), '"')
	j.text("event_code", string(e.Kind))
	j.text("log_provider", e.Writer)
	j.text("correlation_uid", e.Run)
	j.integer("sequence", int64(e.Sequence))
	if e.Verdict != "" {
		j.key("profiles")
		j.b = append(j.b, `["security_control"]`...)
	}
	j.close()
}

// rfc3339 keeps all nine digits, so that text sorts as time does.
const rfc3339 = "2006-01-02T15:04:05.000000000Z07:00"

// control is what OCSF's profile for security controls adds.
func (j *writer) control(e *Event) {
	switch e.Verdict {
	case Allow:
		j.b = append(j.b, `,"action_id":1,"disposition_id":1`...)
	case Deny:
		j.b = append(j.b, `,"action_id":2,"disposition_id":2`...)
	default:
		return
	}
	if e.Rule != "" {
		j.open("firewall_rule")
		j.text("name", e.Rule)
		j.close()
	}
}

func (j *writer) source(e *Event) {
	j.open("src_endpoint")
	j.text("uid", e.Run)
	j.text("name", "sandbox")
	j.close()
}

// destination names the server. An agent that is refused before it could name
// one still leads to an object, which the schema asks for.
func (j *writer) destination(e *Event) {
	j.open("dst_endpoint")
	name, ip := e.Host, e.Addr
	if literal(name) {
		name, ip = "", cmpOr(ip, name)
	}
	j.text("hostname", name)
	j.text("ip", ip)
	if name == "" && ip == "" {
		j.text("name", "unknown")
	}
	if e.Port != 0 {
		j.integer("port", int64(e.Port))
	}
	j.close()
}

func literal(host string) bool {
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (j *writer) network(e *Event) {
	if e.Kind == KindInbound {
		j.inbound(e)
		return
	}
	j.source(e)
	j.destination(e)
	j.b = append(j.b, `,"connection_info":{"protocol_name":"tcp","protocol_num":6,"direction_id":2}`...)
}

// inbound is a connection to the sandbox, or the port that waits for some.
func (j *writer) inbound(e *Event) {
	j.open("src_endpoint")
	j.text("uid", "outside")
	j.text("ip", e.Addr)
	j.close()
	j.open("dst_endpoint")
	j.text("uid", e.Run)
	j.text("name", "sandbox")
	if literal(e.Host) {
		j.text("ip", e.Host)
	} else {
		j.text("hostname", e.Host)
	}
	if e.Port != 0 {
		j.integer("port", int64(e.Port))
	}
	j.close()
	j.b = append(j.b, `,"connection_info":{"protocol_name":"tcp","protocol_num":6,"direction_id":1}`...)
}

func (j *writer) request(e *Event, required bool) {
	if required || e.Method != "" || e.Path != "" {
		j.open("http_request")
		j.text("http_method", e.Method)
		j.open("url")
		j.text("hostname", e.Host)
		path, query, found := strings.Cut(e.Path, "?")
		j.text("path", path)
		if found {
			j.key("query_string")
			j.quote(query)
		}
		if e.Port != 0 {
			j.integer("port", int64(e.Port))
		}
		j.close()
		j.close()
	}
	if e.Status != 0 {
		j.open("http_response")
		j.integer("code", int64(e.Status))
		j.close()
	}
}

func (j *writer) dns(e *Event) {
	j.source(e)
	j.b = append(j.b, `,"dst_endpoint":{"svc_name":"dns","port":53}`...)
	if e.Host != "" {
		j.open("query")
		j.text("hostname", e.Host)
		j.close()
	}
	if e.Addr != "" {
		j.key("answers")
		j.b = append(j.b, `[{"rdata":`...)
		j.quote(e.Addr)
		j.b = append(j.b, `}]`...)
	}
	rcode := int64(0)
	if e.Verdict == Deny {
		rcode = 5
	}
	j.integer("rcode_id", rcode)
}

func (j *writer) api(e *Event) {
	j.source(e)
	j.destination(e)
	j.open("actor")
	j.open("session")
	j.text("uid", e.Run)
	j.close()
	j.close()
	j.open("api")
	j.text("operation", cmpOr(e.Operation, string(e.Kind)))
	if service := cmpOr(e.Route, e.Host); service != "" {
		j.open("service")
		j.text("name", service)
		j.close()
	}
	j.close()
	j.request(e, false)
}

func (j *writer) finding(e *Event) {
	title := "a secret or placeholder outside of its place"
	if e.Kind == KindBudget {
		title = "a budget is nearly or wholly used up"
	}
	j.open("finding_info")
	j.key("uid")
	j.b = append(j.b, '"')
	j.b = appendText(j.b, cmpOr(e.ID, e.Run))
	j.b = append(append(j.b, '-'), e.Writer...)
	j.b = append(j.number('-', e.Sequence), '"')
	j.text("title", title)
	j.text("desc", e.Reason)
	j.close()
	j.key("evidences")
	j.b = append(j.b, '[')
	j.open("")
	j.source(e)
	j.destination(e)
	j.close()
	j.b = append(j.b, ']')
}
