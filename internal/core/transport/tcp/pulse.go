package tcp

import (
	"time"

	"github.com/gorovod/gorovod/internal/base/pulse"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// Beat implements transport.Pulsed: it asks on every connection in both directions, also on those that are lent to the
// driver.
func (n *Network) Beat(every time.Duration) (silent []transport.Silence) {
	n.mu.Lock()
	conns := n.connsLocked(func(*conn) bool { return true })
	n.mu.Unlock()
	for _, c := range conns {
		if d, stuck := c.beat(every); d > 0 {
			silent = append(silent, transport.Silence{Rank: c.rank, Addr: c.remote.String(), For: d, Stuck: stuck})
		}
	}
	return silent
}

// Rest implements transport.Pulsed.
func (n *Network) Rest() {
	n.mu.Lock()
	conns := n.connsLocked(func(*conn) bool { return true })
	n.mu.Unlock()
	for _, c := range conns {
		c.rest()
	}
}

func (c *conn) beat(every time.Duration) (silent time.Duration, stuck int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.fd >= 0:
		return c.pulse.Beat(c.fd, every), pulse.Stuck(c.fd)
	case c.custody.is(held):
		return c.link.Beat(every), c.link.Stuck()
	}
	return 0, 0
}

func (c *conn) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.fd >= 0:
		c.pulse.Rest(c.fd)
	case c.custody.is(held):
		c.link.Rest()
	}
}
