package tcp

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// acceptLoop takes connections until the listener is closed.
func (n *Network) acceptLoop() {
	for {
		c, err := n.listener.AcceptTCP()
		if err == nil {
			n.welcome(n.newConn(c, -1, true))
			continue
		}
		if n.ctx.Err() != nil {
			return
		}
		if errors.Is(err, net.ErrClosed) {
			n.Abort(fmt.Errorf("tcp: rank %d's listener was closed: %w", n.cfg.Rank, err))
			return
		}
		// Most likely there are no descriptors left; some may come free.
		select {
		case <-time.After(50 * time.Millisecond):
		case <-n.ctx.Done():
			return
		}
	}
}

// maxUnproven is how many connections may be in the handshake at once. A rank
// needs a few of each other; the rest are strangers. The oldest gives way: a
// handshake takes milliseconds, so the oldest is the least likely to succeed, and
// a rank that it hits nevertheless tries again.
func (n *Network) maxUnproven() int { return 64 + 4*n.cfg.Size }

func (n *Network) welcome(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.startLocked(&n.goroutines, func() { n.prove(c) }) {
		c.Close()
		return
	}
	if len(n.unproven) >= n.maxUnproven() {
		n.unproven[0].Close()
		n.unproven = slices.Delete(n.unproven, 0, 1)
	}
	n.unproven = append(n.unproven, c)
}

// prove runs the handshake with a connection that came in. One that fails it is
// closed without a word to anybody: it may be a port scanner.
func (n *Network) prove(c *conn) {
	h, err := n.respond(c)
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.Index(n.unproven, c); i >= 0 {
		n.unproven = slices.Delete(n.unproven, i, i+1)
	} else if err == nil {
		err = errors.New("gave way")
	}
	if err == nil {
		err = n.admit(h) // again: something may have changed meanwhile
	}
	if err == nil {
		c.rank = int(h.from)
		if !n.registerLocked(c) {
			err = errors.New("too late")
		}
	}
	if err != nil {
		n.turnAway(c)
		return
	}
	if l := n.lanes[int(h.lane)]; l != nil {
		n.handOver(l, h, c)
	} else {
		n.early[h] = c // until OpenLane
	}
}

// turnAway closes a connection for which there is no use. A rank that has been
// told begin and comes too late for anything but the abort learns of that.
func (n *Network) turnAway(c *conn) {
	if c.rank >= 0 && n.lastWord != nil {
		c.SetWriteDeadline(time.Now().Add(abortLinger))
		c.Write(n.lastWord) // fits into the socket's empty buffer
	}
	c.Close()
}
