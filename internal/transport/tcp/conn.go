package tcp

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// conn is a connection with the rank at its other end. It is used in one
// direction, from who dialled to who accepted; the other way only the last word
// travels.
type conn struct {
	*net.TCPConn
	rank    int  // at the other end; -1 until it has proved itself
	inbound bool // this rank has accepted it
	fd      int  // -1 if unknown
	track   func(fd int, open bool)
	once    sync.Once
}

func (n *Network) newConn(c *net.TCPConn, rank int, inbound bool) *conn {
	// A host that vanishes is noticed within a minute, also where nothing is sent.
	c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 20 * time.Second, Interval: 5 * time.Second, Count: 8})
	c.SetNoDelay(true)
	out := &conn{TCPConn: c, rank: rank, inbound: inbound, fd: -1, track: n.cfg.TrackFD}
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { out.fd = int(fd) })
		out.track(out.fd, true)
	}
	return out
}

// Close may be called by anyone, any number of times.
func (c *conn) Close() error {
	c.once.Do(func() {
		if c.fd >= 0 {
			// Before the number can belong to another file.
			c.track(c.fd, false)
		}
		c.TCPConn.Close()
	})
	return nil
}

// String names the other end.
func (c *conn) String() string {
	return fmt.Sprintf("rank %d (%v)", c.rank, c.RemoteAddr())
}

func (n *Network) trackListener(open bool) {
	if raw, err := n.listener.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { n.cfg.TrackFD(int(fd), open) })
	}
}

// register adds a proved connection to those that Close and Abort attend to.
// False: too late, the caller closes it.
func (n *Network) register(c *conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.registerLocked(c)
}

func (n *Network) registerLocked(c *conn) bool {
	if n.ended || n.ending() {
		return false
	}
	n.conns[c] = struct{}{}
	return true
}

// drop closes a registered connection.
func (n *Network) drop(c *conn) {
	n.mu.Lock()
	delete(n.conns, c)
	n.mu.Unlock()
	c.Close()
}
