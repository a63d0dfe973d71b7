package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gorovod/gorovod/internal/transport/msgboard"
)

// lane is one process set's part of a network.
type lane struct {
	net     *Network
	id      int
	members []int // world ranks
	me      int   // this rank's place among them
	board   msgboard.Board

	// By member. This member's own are not used.
	controlOut []controlOut
	dataOut    []dataOut
	dataIn     []dataIn
	controlled []bool // a control connection of this member has come; guarded by Network.mu
}

func newLane(n *Network, id int, members []int, me int) *lane {
	l := &lane{
		net: n, id: id, members: slices.Clone(members), me: me,
		controlOut: make([]controlOut, len(members)),
		dataOut:    make([]dataOut, len(members)),
		dataIn:     make([]dataIn, len(members)),
		controlled: make([]bool, len(members)),
	}
	for m := range members {
		l.controlOut[m].init(l, m)
		l.dataOut[m].init(l, m)
		l.dataIn[m].init(l, m)
	}
	return l
}

// member is the place of a rank among the members.
func (l *lane) member(rank int) (int, bool) { return slices.BinarySearch(l.members, rank) }

// admit checks whether a connection has its place here. Network.mu is held.
func (l *lane) admit(h hello) error {
	m, ok := l.member(int(h.from))
	if !ok {
		return fmt.Errorf("rank %d is not in lane %d of rank %d", h.from, l.id, h.to)
	}
	if h.stream == control && l.controlled[m] || h.stream == data && l.dataIn[m].connected {
		return errors.New("connected already")
	}
	return nil
}

// handOver gives a registered connection to its reader. n.mu is held, and admit
// has agreed.
func (n *Network) handOver(l *lane, h hello, c *conn) {
	if l.admit(h) != nil {
		delete(n.conns, c)
		c.Close()
		return
	}
	m, _ := l.member(int(h.from))
	read := func() { l.readControl(c, m) }
	if h.stream == data {
		l.dataIn[m].connected = true
		read = func() { l.dataIn[m].run(c) }
	} else {
		l.controlled[m] = true
	}
	n.startLocked(&n.goroutines, read)
}

// serve reads c to its end and calls take for every message of the stream;
// take reads the payload. It reports whether the other end has left in good order.
func (n *Network) serve(c *conn, in *incoming, take func(header) error) (left bool) {
	for {
		h, err := in.next()
		if err == nil {
			switch h.kind {
			case messageGoodbye:
				n.departed(c.rank)
				n.drop(c)
				return true
			case messageAbort:
				if err = n.takeAbort(in.r, h); err == nil {
					return false
				}
			default:
				err = take(h)
			}
		}
		if err != nil {
			return n.failed(c, err)
		}
	}
}

// failed ends a connection on which reading or writing has failed. It reports
// whether that is so because the other end has left in good order.
func (n *Network) failed(c *conn, err error) (left bool) {
	if errors.Is(err, errEnding) {
		// Unread bytes would make the kernel reset the connection, see Close. The
		// deadline that Close sets bounds this.
		io.Copy(io.Discard, c)
		return false
	}
	var broken brokenError
	switch {
	case !errors.As(err, &broken):
		n.Abort(fmt.Errorf("connection with %v: %w", c, err))
	case n.peers[c.rank].left.Load() && !broken.inside:
		return true
	default:
		n.broken(c, broken)
	}
	return false
}

// watch reads the silent direction of a connection that this rank has dialled.
func (n *Network) watch(c *conn) {
	n.serve(c, &incoming{r: c}, func(h header) error {
		return fmt.Errorf("message of kind %d in the silent direction", h.kind)
	})
}

// dial makes this rank's connection to a member for one stream, and starts its
// watcher. Nil: the network cannot go on, or the member has left.
func (l *lane) dial(ctx context.Context, to int, s stream) *conn {
	n, rank := l.net, l.members[to]
	c, err := n.connect(ctx, l.id, rank, s)
	if err != nil {
		if !n.ending() && !n.peers[rank].left.Load() {
			n.Abort(fmt.Errorf("rank %d cannot connect to rank %d: %w", n.cfg.Rank, rank, err))
		}
		return nil
	}
	if n.register(c) {
		n.start(&n.goroutines, func() { n.watch(c) })
		return c
	}
	// Too late for the others' attention, but not for the last word.
	c.SetDeadline(time.Now().Add(abortLinger))
	if !n.isAborted() && ctx.Err() == nil {
		return c
	}
	n.farewell(c, 0)
	c.Close()
	return nil
}
