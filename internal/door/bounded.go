package door

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// bounded is a Listener with at most a number of open connections, so that they cost the launcher little memory and few
// descriptors. If there are as many, a newcomer takes the place of the connection that has been idle longest. If none
// is idle, the newcomer is closed at once. A connection is idle unless it waits for the answer to a request that the
// server has called busy for.
type bounded struct {
	net.Listener
	most int

	mu   sync.Mutex
	open map[*boundedConn]time.Time // since when a connection has been idle; zero while it is not
}

func newBounded(l net.Listener, most int) *bounded {
	return &bounded{Listener: l, most: most, open: map[*boundedConn]time.Time{}}
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		own := &boundedConn{c, b}
		out, ok := b.admit(own)
		if out != nil {
			out.Close()
		}
		if ok {
			return own, nil
		}
		c.Close()
	}
}

// admit takes a newcomer in, if ok. out, if not nil, has to go for it.
func (b *bounded) admit(c *boundedConn) (out *boundedConn, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) >= b.most {
		for o, since := range b.open {
			if !since.IsZero() && (out == nil || since.Before(b.open[out])) {
				out = o
			}
		}
		if out == nil {
			return nil, false
		}
		delete(b.open, out)
	}
	b.open[c] = time.Now()
	return out, true
}

type boundedConn struct {
	net.Conn
	in *bounded
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.in.mu.Lock()
	delete(c.in.open, c)
	c.in.mu.Unlock()
	return err
}

// idle notes since when the connection has been idle; zero: it is not.
func (c *boundedConn) idle(since time.Time) {
	c.in.mu.Lock()
	if _, ok := c.in.open[c]; ok {
		c.in.open[c] = since
	}
	c.in.mu.Unlock()
}

// connKey is the key of a request's *boundedConn in its context.
type connKey struct{}

// connContext is http.Server's ConnContext.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// busy keeps the connection of a request from going for a newcomer, until done.
func busy(r *http.Request) (done func()) {
	c, ok := r.Context().Value(connKey{}).(*boundedConn)
	if !ok {
		return func() {}
	}
	c.idle(time.Time{})
	return func() { c.idle(time.Now()) }
}

// quota allows a number of requests per second on average, and bursts.
type quota struct {
	mu    sync.Mutex
	spent time.Time // when the requests so far will have been earned
}

const (
	requestCost = time.Second / 20
	burst       = 40
)

// take reports whether a request is within the quota.
func (q *quota) take(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.spent.Before(now) {
		q.spent = now
	}
	if q.spent.Sub(now) > burst*requestCost {
		return false
	}
	q.spent = q.spent.Add(requestCost)
	return true
}
