package tcp

import (
	"fmt"
	"io"
	"time"
)

// CloseLane implements transport.Network. It waits only for goroutines that may touch a posted buffer, and makes them
// stop at once.
//
// The lane's connections end when the other members close the lane, too, perhaps much later:
//   - The writer writes the rest of a message that was cut short, from a copy, and then messageLaneClosed.
//   - The reader reads on, and drops the data, until messageLaneClosed comes.
//
// So no connection is reset, and a connection that ends without that message has failed.
func (n *Network) CloseLane(id int) error {
	n.mu.Lock()
	l := n.lanes[id]
	if id == 0 || l == nil || n.ended {
		n.mu.Unlock()
		return fmt.Errorf("close lane %d: rank %d has no such lane to close", id, n.cfg.Rank)
	}
	delete(n.lanes, id)
	n.former[id] = l.incarnation
	close(l.closed)
	l.cancel()
	for c := range n.conns {
		switch {
		case c.lane != l:
		case c.inbound:
			c.SetReadDeadline(past)
		case c.stream >= data && !n.ending(): // otherwise abort has set a deadline
			c.SetWriteDeadline(past)
		}
	}
	n.mu.Unlock()
	l.using.Wait()
	l.board.Quiesce()
	return nil
}

var past = time.Unix(1, 0)

// calm removes the deadlines that CloseLane has set, unless the network has ended.
func (n *Network) calm(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.ended:
		c.SetReadDeadline(time.Now().Add(closeLinger))
	case n.ending():
		c.SetReadDeadline(time.Time{})
	default:
		c.SetDeadline(time.Time{})
	}
}

// leave writes the rest of a message and then messageLaneClosed to a connection that this rank has dialled. Only the
// writer of the connection may call it. The connection's watcher sees the other end close it.
func (n *Network) leave(c *conn, rest []byte, sequence uint32) {
	if n.isAborted() {
		if len(rest) == 0 {
			n.farewell(c, sequence)
		}
		return
	}
	n.calm(c)
	var word [headerSize]byte
	header{kind: messageLaneClosed, sequence: sequence}.put(word[:])
	if _, err := c.Write(append(rest, word[:]...)); err == nil {
		c.CloseWrite()
	}
}

// drain reads an inbound connection of a lane that this rank has closed, until the other end has closed the lane, too.
func (n *Network) drain(c *conn) {
	n.calm(c)
	io.Copy(io.Discard, c)
	n.drop(c)
}
