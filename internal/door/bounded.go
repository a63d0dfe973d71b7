package door

import (
	"net"
	"sync"
	"time"
)

// bounded is a Listener with at most as many open connections as room has places. It closes further connections at
// once, so that they cost the launcher neither memory nor descriptors.
type bounded struct {
	net.Listener
	room chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.room <- struct{}{}:
			return &boundedConn{Conn: c, leave: sync.OnceFunc(func() { <-b.room })}, nil
		default:
			c.Close()
		}
	}
}

type boundedConn struct {
	net.Conn
	leave func()
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
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
