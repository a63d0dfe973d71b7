package tcp

import (
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
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.admit(h) != nil: // again: something may have changed meanwhile
		c.Close()
	case n.registerLocked(c):
		n.place(h, c)
	default:
		// The other end has been told that it is welcome, and comes too late for
		// anything but the abort.
		if n.lastWord != nil {
			c.SetWriteDeadline(time.Now().Add(abortLinger))
			c.Write(n.lastWord) // fits into the socket's empty buffer
		}
		c.Close()
	}
}
