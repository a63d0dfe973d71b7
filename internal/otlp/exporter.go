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
	"sync"
	"time"
)

const (
	// mostQueued is how many spans can wait for the collector. A job has few spans: one for each world and failure.
	mostQueued = 1024
	// gather is how long the exporter gathers spans before it sends them.
	gather = time.Second
	// pause is how long the exporter waits after a collector has refused a request.
	pause = 15 * time.Second
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

// run is the exporter's goroutine.
func (e *exporter) run(ctx context.Context) {
	defer close(e.ended)
	defer e.client.CloseIdleConnections()
	for over := false; !over || len(e.queue) > 0; {
		var batch []span
		select {
		case s := <-e.queue:
			batch = append(batch, s)
			over = e.wait(gather)
		case <-e.over:
			over = true
		}
		batch = e.rest(batch)
		if len(batch) == 0 {
			continue
		}
		if err := e.send(ctx, batch); err != nil {
			e.warned.Do(func() {
				e.options.Warn(fmt.Sprintf("the collector of OpenTelemetry does not take the job's spans: %v; the job "+
					"goes on without", err))
			})
			if !over {
				over = e.wait(pause)
			}
		}
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

// rest adds the queued spans to batch.
func (e *exporter) rest(batch []span) []span {
	for {
		select {
		case s := <-e.queue:
			batch = append(batch, s)
		default:
			return batch
		}
	}
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
	answer, err := e.client.Do(r)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return fmt.Errorf("%s: %w", plain(r.URL), err)
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, io.LimitReader(answer.Body, mostAnswer))
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s answers %s", plain(r.URL), answer.Status)
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
