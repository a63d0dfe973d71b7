package tcp

import (
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// half is the end of a connection whose goroutine lends the connection to the driver. The lock keeps the goroutine from
// taking the connection back during a system call of the driver.
type half struct {
	mu   sync.Mutex
	conn atomic.Pointer[conn] // nil until there is one
}

// lent returns the connection while the driver may use it, otherwise nil. If the caller does not hold h.mu, the answer
// is only a hint.
func (h *half) lent() *conn {
	if c := h.conn.Load(); c != nil && c.custody.is(lent) {
		return c
	}
	return nil
}

// lend lends c to the driver. It returns false if the goroutine keeps c.
func (h *half) lend(c *conn) bool {
	h.conn.Store(c)
	if !c.lend() {
		return false
	}
	if c.watch() != nil {
		h.takeBack(c)
		return false
	}
	return true
}

// awaitReturn blocks until c is to be taken back, and takes it back. The half's fields say how far the driver has got.
func (h *half) awaitReturn(c *conn) {
	c.net.bell.Ring() // the driver may find data or room at once
	select {
	case <-c.recalled:
	case <-c.lane.closed:
	case <-c.net.aborted:
	case <-c.net.leaving:
	}
	h.takeBack(c)
}

// takeBack takes c back for its goroutine. When it returns, the driver no longer uses c.
func (h *half) takeBack(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.takeBack()
}

// lend takes the connection away from Go's poller. It returns false if that is impossible, or too late. The half calls
// it, once.
func (c *conn) lend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Look for the end of the network under the lock. Then a goroutine that ends the network and writes the last word
	// finds the connection held, or waits until it is.
	if c.net.edges == nil || c.net.ending() || !c.custody.is(held) || c.link.IsSealed() {
		return false
	}
	fd, err := c.link.Detach()
	if err != nil {
		return false
	}
	c.link, c.fd = nil, fd
	return c.custody.happens(lending)
}

// watch makes the kernel tell a sleeping driver and the keeper of events on a lent connection.
func (c *conn) watch() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched, err = c.net.keeper.add(c, c.fd); err != nil {
		return err
	}
	return c.net.edges.watch(c.fd, c.inbound)
}

// recall makes the goroutine of a lent connection take it back. It does not block.
func (c *conn) recall() {
	if c.custody.happens(recalling) {
		close(c.recalled)
	}
}

// takeBack gives the connection back to Go's poller. Only the half calls it, once, with its lock held, so that nobody
// uses the descriptor.
func (c *conn) takeBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.net.keeper.remove(c.watched, c.fd)
	c.net.edges.unwatch(c.fd)
	c.pulse.Rest(c.fd)
	c.awaitAny()
	c.link, c.lost = link.Attach(c.fd, c.local, c.remote, c.net.cfg.Idle, c.net.cfg.TrackFD)
	c.fd = -1
	c.custody.happens(takingBack)
	if c.lost != nil {
		c.custody.happens(closing)
	} else {
		c.link.SetReadDeadline(c.readBy)
		c.link.SetWriteDeadline(c.writeBy)
	}
	close(c.back)
}
