package tcp

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// failed ends a connection on which reading or writing has failed. It reports whether the cause is that the other end
// has left in good order. It may wait for the grace.
func (n *Network) failed(c *conn, err error) (left bool) {
	if c.abandoned() {
		return false
	}
	if errors.Is(err, errEnding) {
		// Unread bytes would make the kernel reset the connection, see Close. The deadline that Close sets bounds this
		// loop.
		io.Copy(io.Discard, c)
		return false
	}
	var broken brokenError
	switch {
	case !errors.As(err, &broken):
		n.Abort(fmt.Errorf("connection with %v: %w", c, err))
		return false
	case n.peers[c.rank].left.Load() && !broken.inside:
		return true
	}
	return n.broken(c, broken)
}

// broken is called by the reader or the writer of a connection that has failed. A broken connection does not prove that
// a rank has died, but the lane cannot go on. So the network aborts after the grace. The broken connection is the cause
// if no better one has come. A goodbye may have come meanwhile, over another connection: then broken returns true, and
// the lane can go on without this one, unless something is still to be sent or received there.
func (n *Network) broken(c *conn, err brokenError) (left bool) {
	if n.ending() {
		return false
	}
	p := &n.peers[c.rank]
	cause := fmt.Errorf("connection to %v lost: %w", c, err.error)
	if errors.Is(err.error, syscall.EFAULT) {
		cause = fmt.Errorf("%s: the program has freed or unmapped the memory of an operation before it ended: %w",
			n.cfg.Describe(n.cfg.Rank), cause)
	}
	if !p.lost.Swap(true) {
		n.start(&n.goroutines, func() { n.cfg.Lost(c.rank, cause) })
	}
	if !n.afterGrace(c.lane.closed) || c.abandoned() {
		return false
	}
	if err.inside || !p.left.Load() {
		n.Abort(cause)
		return false
	}
	c.lostFirst = true
	return true
}

// departed notes that a rank has closed its network. If the logs of its lanes are
// closed, that is in order. A lane that is still open can never go on.
func (n *Network) departed(rank int) {
	if n.peers[rank].left.Swap(true) {
		return
	}
	n.start(&n.goroutines, func() {
		if !n.afterGrace(nil) {
			return
		}
		for _, l := range n.openLanes() {
			member, ok := l.member(rank)
			if ok && l.board.Linked(member) && l.board.ClosedBy() < 0 && n.forsaken(l) {
				n.Abort(fmt.Errorf("rank %d has closed its network while lane %d was open", rank, l.id))
				return
			}
		}
	})
}

// forsakenBy reports that the lane cannot go on without the rank of c, which has left in good order, though something
// was still to be sent or received over c. If c broke before, data of that rank may be lost, whichever lane it is.
func (n *Network) forsakenBy(c *conn) bool {
	return c.lostFirst && !c.abandoned() || n.forsaken(c.lane)
}

// forsaken reports that the lane cannot go on without a rank that has closed its network. If there is a lane 0, to
// which all ranks belong, the answer is true only for lane 0. Ranks close their other lanes first, and this rank may be
// late with that.
func (n *Network) forsaken(l *lane) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return l.id == 0 || n.lanes[0] == nil && n.lanes[l.id] == l
}

// afterGrace waits for the grace. It returns false if the network, or the lane that closed belongs to, has ended first.
func (n *Network) afterGrace(closed chan struct{}) bool {
	t := time.NewTimer(n.cfg.Grace)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-n.aborted:
	case <-n.leaving:
	case <-closed:
	}
	return false
}
