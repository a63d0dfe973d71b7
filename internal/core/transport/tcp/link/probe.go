package link

import (
	"time"

	"github.com/gorovod/gorovod/internal/base/pulse"
)

// Beat is pulse.Pulse.Beat on this connection.
func (c *Conn) Beat(every time.Duration) (silent time.Duration) {
	if c.wire != nil {
		return c.wire.Beat(every)
	}
	c.control(func(fd int) { silent = c.pulse.Beat(fd, every) })
	return silent
}

// Rest is pulse.Pulse.Rest on this connection.
func (c *Conn) Rest() {
	if c.wire != nil {
		c.wire.Rest()
		return
	}
	c.control(c.pulse.Rest)
}

// Stuck is pulse.Stuck of this connection.
func (c *Conn) Stuck() (bytes int) {
	if c.wire != nil {
		return c.wire.Stuck()
	}
	c.control(func(fd int) { bytes = pulse.Stuck(fd) })
	return bytes
}

func (c *Conn) control(f func(fd int)) {
	c.pulsing.Lock()
	defer c.pulsing.Unlock()
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
