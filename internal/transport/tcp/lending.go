package tcp

import (
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/transport/tcp/link"
)

// half is the end of a connection whose goroutine lends it to the driver. Its lock keeps the
// goroutine from taking the connection back amid a system call of the driver.
type half struct {
	mu   sync.Mutex
	conn atomic.Pointer[conn] // nil until there is one
}

// lent is the connection while the driver may use it, else nil. Whoever does not hold h.mu
// gets a hint.
func (h *half) lent() *conn {
	if c := h.conn.Load(); c != nil && c.custody.is(lent) {
		return c
	}
	return nil
}

// lend lends c to the driver. False: the goroutine keeps it.
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

// awaitReturn blocks until c is to be taken back, and takes it back. What the half has done
// with it until then stays in the half's fields.
func (h *half) awaitReturn(c *conn) {
	c.net.bell.Ring() // the driver looks for itself what there is to do
	select {
	case <-c.recalled:
	case <-c.lane.closed:
	case <-c.net.aborted:
	case <-c.net.leaving:
	}
	h.takeBack(c)
}

// takeBack returns when the driver uses c no more, and its goroutine has it.
func (h *half) takeBack(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.takeBack()
}

// lend takes the connection away from Go's runtime; false if that cannot be, or does not pay
// any more. Its half calls this, once.
func (c *conn) lend() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The end of the network is looked at under the lock: whoever ends it and then writes the
	// last word finds the connection held, or waits until it is.
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

// watch has the kernel tell a sleeping driver and the keeper of what happens to a lent
// connection.
func (c *conn) watch() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watched, err = c.net.keeper.add(c, c.fd); err != nil {
		return err
	}
	return c.net.edges.watch(c.fd, c.inbound)
}

// recall has its goroutine take a lent connection back. It does not block.
func (c *conn) recall() {
	if c.custody.happens(recalling) {
		close(c.recalled)
	}
}

// takeBack gives the connection to Go's runtime again. Its half alone calls this, once, when
// it sees to it that nobody uses the descriptor.
func (c *conn) takeBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.net.keeper.remove(c.watched, c.fd)
	c.net.edges.unwatch(c.fd)
	c.pulse.Rest(c.fd)
	c.link, c.lost = link.Attach(c.fd, c.net.cfg.TrackFD)
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
