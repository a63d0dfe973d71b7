// Package otlp reports a job to a collector of OpenTelemetry: as spans, by OTLP over HTTP, encoded as JSON. Only the
// launcher imports it. It is off unless GOROVOD_OTLP is set.
//
//	launcher ── Job (spans of the job, its worlds, steps, failures) ──▶ queue ── exporter ──▶ POST …/v1/traces
//
// A collector that is slow, absent or answers nonsense costs the job nothing: spans for which the queue has no room are
// lost, a request takes a bounded time on a goroutine of its own, and one warning tells the user.
package otlp

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Variable switches the export on.
const Variable = "GOROVOD_OTLP"

// Options say where spans go.
type Options struct {
	URL     string // the whole URL, such as http://localhost:4318/v1/traces
	Headers map[string]string
	Service string
	Timeout time.Duration // of a request
	// Warn is called once if a collector does not take the spans.
	Warn func(text string)
}

// The names of OpenTelemetry's variables. A variable for traces overrides the one for all signals.
const (
	endpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	headers        = "OTEL_EXPORTER_OTLP_HEADERS"
	tracesHeaders  = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	protocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	timeout        = "OTEL_EXPORTER_OTLP_TIMEOUT"
	tracesTimeout  = "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"
	service        = "OTEL_SERVICE_NAME"
)

// defaultTimeout limits a request. OpenTelemetry's default is 10 s, too long for a job's end.
const defaultTimeout = 5 * time.Second

// From reads the variables. on: the user asks for the export.
func From(getenv func(string) string) (o Options, on bool, err error) {
	switch v := getenv(Variable); v {
	case "", "0":
		return o, false, nil
	case "1":
	default:
		return o, false, fmt.Errorf("%s=%s: 0 or 1 is needed", Variable, v)
	}
	first := func(names ...string) (name, value string) {
		for _, name := range names {
			if v := getenv(name); v != "" {
				return name, v
			}
		}
		return "", ""
	}
	if name, v := first(tracesProtocol, protocol); v != "" && !strings.HasPrefix(v, "http/") {
		return o, false, fmt.Errorf("%s=%s: only OTLP over HTTP is spoken here: unset it, and name the collector's "+
			"port for HTTP in %s, such as http://localhost:4318", name, v, endpoint)
	}
	name, at := first(tracesEndpoint, endpoint)
	o.URL = at
	if name != tracesEndpoint {
		if o.URL == "" {
			name, o.URL = endpoint, "http://localhost:4318"
		}
		o.URL = strings.TrimRight(o.URL, "/") + "/v1/traces"
	}
	if u, err := url.Parse(o.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return o, false, fmt.Errorf("%s: a URL is needed, such as http://localhost:4318", name)
	}
	o.Headers = map[string]string{}
	if name, v := first(tracesHeaders, headers); v != "" {
		for _, item := range strings.Split(v, ",") {
			key, value, ok := strings.Cut(item, "=")
			key = strings.TrimSpace(key)
			text, err := url.PathUnescape(strings.TrimSpace(value))
			if !ok || key == "" || err != nil || strings.ContainsAny(key+text, "\r\n") {
				return o, false, fmt.Errorf("%s: NAME=VALUE,NAME=VALUE is needed, with %%2C for a comma", name)
			}
			o.Headers[key] = text
		}
	}
	o.Timeout = defaultTimeout
	if name, v := first(tracesTimeout, timeout); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms < 1 || ms > 600_000 {
			return o, false, fmt.Errorf("%s=%s: a number of milliseconds from 1 to 600000 is needed", name, v)
		}
		o.Timeout = time.Duration(ms) * time.Millisecond
	}
	if o.Service = getenv(service); o.Service == "" {
		o.Service = "gorovod"
	}
	return o, true, nil
}
