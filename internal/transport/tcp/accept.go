package tcp

import (
	"io"
	"time"

	"github.com/gorovod/gorovod/internal/transport/tcp/link"
)

// maxUnproven is how many connections may be in the handshake at once. A rank
// needs a few of each other; the rest are strangers.
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

// take is given a proved connection.
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

// keep puts a connection where it belongs, if it does not come too late.
func (n *Network) keep(h hello, c *conn) (late bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.admit(h) != nil: // again: something may have changed meanwhile
		c.Close()
	case n.registerLocked(c):
		n.place(h, c)
	default:
		return true
	}
	return false
}

// turnAway says the last word on a connection that comes too late for anything
// else, though the other end has been told that it is welcome: without a word that
// would take this rank for dead. A goodbye waits as in Close.
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
