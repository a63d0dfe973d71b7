package tcp

import (
	"net"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// hold returns the connection for calls that may block. It waits until the connection is held.
func (c *conn) hold() (*link.Conn, error) {
	c.settle()
	defer c.mu.Unlock()
	switch {
	case c.lost != nil:
		return nil, c.lost
	case c.custody.is(closed):
		return nil, net.ErrClosed
	}
	return c.link, nil
}

// settle returns with c.mu held, and the connection held or closed.
func (c *conn) settle() {
	c.mu.Lock()
	for c.custody.is(lent) || c.custody.is(returning) {
		c.mu.Unlock()
		c.recall()
		<-c.back
		c.mu.Lock()
	}
}

func (c *conn) Read(p []byte) (int, error) {
	l, err := c.hold()
	if err != nil {
		return 0, err
	}
	return l.Read(p)
}

func (c *conn) Write(p []byte) (int, error) {
	l, err := c.hold()
	if err != nil {
		return 0, err
	}
	return l.Write(p)
}

// writeVector writes all of v: with writev, if the connection has never been lent.
func (c *conn) writeVector(v *net.Buffers) error {
	l, err := c.hold()
	if err == nil {
		_, err = v.WriteTo(l.Stream) // not to l, which hides writev
	}
	return err
}

func (c *conn) CloseWrite() error {
	l, err := c.hold()
	if err != nil {
		return err
	}
	return l.CloseWrite()
}

func (c *conn) SetDeadline(t time.Time) {
	c.SetReadDeadline(t)
	c.SetWriteDeadline(t)
}

// SetReadDeadline does not wait: the deadline applies once the connection is held.
func (c *conn) SetReadDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readBy = t
	if c.link != nil {
		c.link.SetReadDeadline(t)
	}
}

// SetWriteDeadline does not wait: the deadline applies once the connection is held.
func (c *conn) SetWriteDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	if c.link != nil {
		c.link.SetWriteDeadline(t)
	}
}

// Close is safe on any goroutine, any number of times.
func (c *conn) Close() error {
	c.settle()
	defer c.mu.Unlock()
	if c.custody.happens(closing) {
		c.link.Close()
	}
	return nil
}
