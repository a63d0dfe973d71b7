package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// mostQueued is how many spans can wait for the collector, and how many more the request that it has refused may
	// have. Spans of steps leave half of the queue to the spans of worlds and failures, of which a job has few.
	mostQueued = 1024
	// gather is how long the exporter gathers spans before it sends them.
	gather = time.Second
	// pause is how long the exporter waits after a collector has refused a request, if the collector does not say how
	// long; else as long as that, but no longer than longestPause.
	pause        = 15 * time.Second
	longestPause = 5 * time.Minute
	// lastWait is how long the job's end waits for the last request.
	lastWait = 2 * time.Second
)

// exporter sends spans. Its methods never block, except close.
type exporter struct {
	options Options
	client  http.Client
	queue   chan span
	over    chan struct{} // closed by close
	ended   chan struct{}
	cancel  context.CancelFunc
	warned  sync.Once
}

func newExporter(o Options) *exporter {
	ctx, cancel := context.WithCancel(context.Background())
	e := &exporter{options: o, queue: make(chan span, mostQueued), over: make(chan struct{}),
		ended: make(chan struct{}), cancel: cancel}
	e.client = http.Client{Timeout: o.Timeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment},
		// No redirects: the headers may hold a key, which is for the collector alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	go e.run(ctx)
	return e
}

// add queues a span, or drops it if the queue is full.
func (e *exporter) add(s span) {
	select {
	case e.queue <- s:
	default:
	}
}

// addSteps queues spans of steps, or drops them if the queue is half full.
func (e *exporter) addSteps(spans []span) {
	if len(e.queue)+len(spans) > mostQueued/2 {
		return
	}
	for _, s := range spans {
		e.add(s)
	}
}

// run is the exporter's goroutine. It keeps the spans of a request that the collector may take later, and sends them
// again.
func (e *exporter) run(ctx context.Context) {
	defer close(e.ended)
	defer e.client.CloseIdleConnections()
	var batch []span
	for over := false; !over || len(e.queue) > 0; {
		if len(batch) == 0 {
			select {
			case s := <-e.queue:
				batch = append(batch, s)
				over = over || e.wait(gather)
			case <-e.over:
				over = true
			}
		}
		if batch = e.rest(batch); len(batch) == 0 {
			continue
		}
		err := e.send(ctx, batch)
		later := refusal{}
		if !errors.As(err, &later) {
			batch = nil
		}
		if err == nil {
			continue
		}
		next := "these are lost"
		if batch != nil && !over {
			next = "they are sent again later"
		}
		e.warned.Do(func() {
			e.options.Warn(fmt.Sprintf("the collector of OpenTelemetry does not take the job's spans: %v; the job "+
				"goes on; %s", err, next))
		})
		switch {
		case over:
			batch = nil // it was the last try
		case later.after > 0:
			over = e.wait(later.after)
		default:
			over = e.wait(pause)
		}
	}
	if len(batch) > 0 { // the end came while it waited
		e.send(ctx, batch)
	}
}

// wait waits for d, or until close is called.
func (e *exporter) wait(d time.Duration) (over bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-e.over:
		return true
	}
}

// rest adds the queued spans to batch, up to mostQueued.
func (e *exporter) rest(batch []span) []span {
	for len(batch) < mostQueued {
		select {
		case s := <-e.queue:
			batch = append(batch, s)
		default:
			return batch
		}
	}
	return batch
}

// refusal is the error of a request that the collector may take later.
type refusal struct {
	error
	after time.Duration // that the collector wants to pass before; 0: it does not say
}

// retryable are the answers after which the protocol has a client send the same request again.
var retryable = []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
	http.StatusGatewayTimeout}

// retryAfter reads a header Retry-After: seconds, or a date.
func retryAfter(value string, now time.Time) time.Duration {
	after := time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		after = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		after = at.Sub(now)
	}
	return max(0, min(after, longestPause))
}

// mostAnswer is how many bytes of an answer are read, so that the connection can be used again.
const mostAnswer = 64 << 10

// send sends one request.
func (e *exporter) send(ctx context.Context, spans []span) error {
	body, err := json.Marshal(requestOf(e.options.Service, spans))
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.options.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range e.options.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/json")
	began := time.Now()
	answer, err := e.client.Do(r)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			if wrapped.Timeout() || errors.Is(err, context.Canceled) {
				return refusal{fmt.Errorf("%s has not answered for %v", plain(r.URL),
					time.Since(began).Round(100*time.Millisecond)), 0}
			}
			err = wrapped.Err
		}
		return refusal{fmt.Errorf("%s: %w", plain(r.URL), err), 0} // it may be back later
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, io.LimitReader(answer.Body, mostAnswer))
	if answer.StatusCode/100 != 2 {
		err := fmt.Errorf("%s answers %s", plain(r.URL), answer.Status)
		if slices.Contains(retryable, answer.StatusCode) {
			return refusal{err, retryAfter(answer.Header.Get("Retry-After"), time.Now())}
		}
		return err
	}
	return nil
}

// plain is u without parts that may be secret: a password, and the query.
func plain(u *url.URL) string {
	p := *u
	p.User, p.RawQuery = nil, ""
	return p.String()
}

// close sends the queued spans, and returns after lastWait at the latest.
func (e *exporter) close() {
	close(e.over)
	t := time.NewTimer(lastWait)
	defer t.Stop()
	select {
	case <-e.ended:
	case <-t.C:
		e.cancel()
		<-e.ended
	}
	e.cancel()
}
