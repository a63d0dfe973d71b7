package door

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// bounded is a Listener with at most a number of open connections, so that they cost the launcher little memory and few
// descriptors. If there are as many, a newcomer takes the place of an idle one: of the source that has the most idle
// connections, the one that has been idle longest. So a crowd from one source displaces its own connections. If none
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
		own := &boundedConn{c, b, sourceOf(c.RemoteAddr().String())}
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
		if out = b.leastNeeded(); out == nil {
			return nil, false
		}
		delete(b.open, out)
	}
	b.open[c] = time.Now()
	return out, true
}

// leastNeeded is the connection that goes for a newcomer; nil if none is idle.
func (b *bounded) leastNeeded() (out *boundedConn) {
	idle := map[netip.Prefix]int{}
	for c, since := range b.open {
		if !since.IsZero() {
			idle[c.from]++
		}
	}
	for c, since := range b.open {
		if since.IsZero() {
			continue
		}
		if out == nil || idle[c.from] > idle[out.from] ||
			idle[c.from] == idle[out.from] && since.Before(b.open[out]) {
			out = c
		}
	}
	return out
}

type boundedConn struct {
	net.Conn
	in   *bounded
	from netip.Prefix
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
