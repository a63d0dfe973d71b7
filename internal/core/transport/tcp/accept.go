package tcp

import (
	"io"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport/tcp/link"
)

// maxUnproven is how many connections may be in the handshake at once. Each other rank needs a few; the rest are
// strangers.
func maxUnproven(size int) int { return 64 + 4*size }

// judge checks a hello against this rank.
func (n *Network) judge(p []byte) error {
	h, err := parseHello(p)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.admit(h)
}

// take takes a connection that has proved that it belongs to the job.
func (n *Network) take(p []byte, raw *link.Conn) {
	h, err := parseHello(p)
	if err != nil {
		raw.Close()
		return
	}
	c := n.newConn(raw, int(h.from), h.stream, true)
	if late := n.keep(h, c); late {
		n.turnAway(c)
	}
}

// keep gives a connection to the stream that it belongs to, and reports whether the connection comes too late.
func (n *Network) keep(h hello, c *conn) (late bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.admit(h) != nil: // again, because something may have changed since
		c.Close()
	case n.registerLocked(c):
		n.place(h, c)
	default:
		return true
	}
	return false
}

// place gives a registered connection to the stream that it belongs to. n.mu is held.
func (n *Network) place(h hello, c *conn) {
	switch l := n.lanes[int(h.lane)]; {
	case n.outdated(h):
		n.startLocked(&n.goroutines, func() { n.drain(c) })
	case l != nil && h.incarnation == l.incarnation:
		n.handOver(l, h, c)
	default:
		n.early[h] = c // until OpenLane
	}
}

// outdated reports that this rank has closed the lane of a hello. Then this rank reads the connection and drops the
// data (drain), until the other end closes the lane, too. n.mu is held.
func (n *Network) outdated(h hello) bool {
	if l := n.lanes[int(h.lane)]; l != nil && h.incarnation < l.incarnation {
		return true
	}
	last, ok := n.former[int(h.lane)]
	return ok && h.incarnation <= last
}

// handOver gives a registered connection to its reader. n.mu is held, and admit has accepted the hello.
func (n *Network) handOver(l *lane, h hello, c *conn) {
	if l.admit(h) != nil {
		delete(n.conns, c)
		c.Close()
		return
	}
	c.lane = l
	m, _ := l.member(int(h.from))
	if h.stream >= data {
		s := &l.dataIn[m].streams[h.stream-data]
		s.connected = true
		n.startUser(l, &n.goroutines, func() func() { return s.serve(c) })
		return
	}
	l.controlled[m] = true
	n.startLocked(&n.goroutines, func() { l.controlIn[m].serve(c) })
}

// turnAway closes a connection that was accepted after the network's end began. It writes the goodbye or the abort
// first: the other end has heard that it is welcome, and would take a bare close for this rank's death. After a goodbye
// it waits as Close does.
func (n *Network) turnAway(c *conn) {
	defer c.Close()
	if n.isAborted() {
		c.SetDeadline(time.Now().Add(abortLinger))
		c.Write(n.lastWord)
		return
	}
	c.SetDeadline(time.Now().Add(closeLinger))
	if _, err := c.Write(goodbye()); err == nil {
		c.CloseWrite()
		io.Copy(io.Discard, c)
	}
}
