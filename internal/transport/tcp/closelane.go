package tcp

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// CloseLane implements transport.Network. It waits only for those goroutines
// that may touch a posted buffer, and makes them stop at once.
//
// The lane's connections end in good order, and that takes until the other
// members close the lane too, which may be much later. Who sends completes the
// message that was cut short, out of a copy, says messageLaneClosed and nothing
// more. Who receives reads on and throws away what comes, until that message.
// So no connection is ever reset, and none that ends without the message can be
// mistaken for this.
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
		case c.stream >= data && !n.ending(): // else abort has set a deadline
			c.SetWriteDeadline(past)
		}
	}
	n.mu.Unlock()
	l.using.Wait()
	l.board.Quiesce()
	return nil
}

var past = time.Unix(1, 0)

// calm takes back the deadlines that CloseLane has set, as far as the network
// goes on.
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

// leave says on a connection that this rank has dialled that the lane is closed,
// after the rest of a message. Only the connection's writer may call it. The
// connection's watcher sees the other end close it.
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

// drain reads an inbound connection of a lane that is closed here, until the
// other end has closed the lane too.
func (n *Network) drain(c *conn) {
	n.calm(c)
	io.Copy(io.Discard, c)
	n.drop(c)
}

// abandoned reports that the connection's lane has been closed on this rank, so
// that nobody needs it any more.
func (c *conn) abandoned() bool { return c.lane != nil && isClosed(c.lane.closed) }

// place puts a registered connection where it belongs. n.mu is held.
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

// outdated reports that the lane of a hello has been closed on this rank. The
// other end has not got there yet, and may talk to the wall until then. n.mu is
// held.
func (n *Network) outdated(h hello) bool {
	if l := n.lanes[int(h.lane)]; l != nil && h.incarnation < l.incarnation {
		return true
	}
	last, ok := n.former[int(h.lane)]
	return ok && h.incarnation <= last
}

// startUser is startLocked for use, which may touch buffers posted to l, and
// then after, which does not.
func (n *Network) startUser(l *lane, group *sync.WaitGroup, use, after func()) {
	if isClosed(l.closed) || n.ended {
		return
	}
	l.using.Add(1)
	n.startLocked(group, func() {
		func() {
			defer l.using.Done()
			use()
		}()
		after()
	})
}

// forsaken reports that the lane cannot go on without a rank that has closed its
// network. Where there is a lane 0, to which all ranks belong, that alone can
// tell: the closing of another lane comes before the closing of its log, and
// this rank may not have got there yet.
func (n *Network) forsaken(l *lane) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return l.id == 0 || n.lanes[0] == nil && n.lanes[l.id] == l
}

// openLanes lists the lanes by id.
func (n *Network) openLanes() []*lane {
	n.mu.Lock()
	defer n.mu.Unlock()
	var lanes []*lane
	for _, l := range n.lanes {
		lanes = append(lanes, l)
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return a.id - b.id })
	return lanes
}
