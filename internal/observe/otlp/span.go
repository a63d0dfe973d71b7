package otlp

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
	"time"

	"github.com/gorovod/gorovod/internal/base/version"
)

// span is a Span of the protocol's trace.proto in its JSON form: ids are hexadecimal, and numbers of 64 bits are
// strings.
type span struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	ParentID   string      `json:"parentSpanId,omitempty"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"`
	Start      string      `json:"startTimeUnixNano"`
	End        string      `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes,omitempty"`
	Events     []event     `json:"events,omitempty"`
	Status     status      `json:"status"`
}

// internalKind is SPAN_KIND_INTERNAL, and failedStatus STATUS_CODE_ERROR.
const (
	internalKind = 1
	failedStatus = 2
)

type event struct {
	At         string      `json:"timeUnixNano"`
	Name       string      `json:"name"`
	Attributes []attribute `json:"attributes,omitempty"`
}

type status struct {
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

type attribute struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

// value is an AnyValue: one of the fields.
type value struct {
	Text *string  `json:"stringValue,omitempty"`
	Int  *string  `json:"intValue,omitempty"`
	Real *float64 `json:"doubleValue,omitempty"`
}

func text(key, v string) attribute { return attribute{key, value{Text: &v}} }

func number(key string, v int) attribute {
	s := strconv.Itoa(v)
	return attribute{key, value{Int: &s}}
}

func decimal(key string, v float64) attribute { return attribute{key, value{Real: &v}} }

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// randomID returns a new id of n bytes.
func randomID(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// request is an ExportTraceServiceRequest.
type request struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource   resource     `json:"resource"`
	ScopeSpans []scopeSpans `json:"scopeSpans"`
}

type resource struct {
	Attributes []attribute `json:"attributes"`
}

type scopeSpans struct {
	Scope scope  `json:"scope"`
	Spans []span `json:"spans"`
}

type scope struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// requestOf is the request with these spans.
func requestOf(service string, spans []span) request {
	host, _ := os.Hostname()
	about := []attribute{text("service.name", service), text("host.name", host), number("process.pid", os.Getpid())}
	return request{[]resourceSpans{{resource{about},
		[]scopeSpans{{scope{"gorovod", version.Version}, spans}}}}}
}
