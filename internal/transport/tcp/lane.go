package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/transport/treeboard"
)

// lane is one process set's part of a network.
type lane struct {
	net         *Network
	id          int
	incarnation uint32
	members     []int // world ranks
	me          int   // this rank's place among them
	board       treeboard.Board

	closed chan struct{} // by CloseLane
	// ctx and lastCtx are the network's, and cancel is CloseLane's.
	ctx, lastCtx context.Context
	cancel       func()
	// using counts the goroutines that may touch posted buffers. Network.mu is
	// held for Add.
	using sync.WaitGroup

	// By member. This member's own are not used.
	controlOut []controlOut
	unflushed  unflushed
	controlIn  []controlIn
	dataOut    []dataOut
	dataIn     []dataIn
	// The driver's: those of them that may have something outstanding.
	sending   []*dataOut
	receiving []*dataIn

	linked []int         // the members whose frames come here
	polls  atomic.Uint32 // by the driver, for frames

	controlled []bool // a control connection of this member has come; guarded by Network.mu
}

func newLane(n *Network, id int, incarnation uint32, members []int, me int) *lane {
	l := &lane{
		net: n, id: id, incarnation: incarnation, members: slices.Clone(members), me: me,
		closed:     make(chan struct{}),
		controlOut: make([]controlOut, len(members)),
		controlIn:  make([]controlIn, len(members)),
		dataOut:    make([]dataOut, len(members)),
		dataIn:     make([]dataIn, len(members)),
		controlled: make([]bool, len(members)),
	}
	var cancels [2]context.CancelFunc
	l.ctx, cancels[0] = context.WithCancel(n.ctx)
	l.lastCtx, cancels[1] = context.WithCancel(n.lastCtx)
	l.cancel = func() { cancels[0](); cancels[1]() }
	for m := range members {
		l.controlOut[m].init(l, m)
		l.controlIn[m].init(l, m)
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
	if h.stream == control && l.controlled[m] || h.stream >= data && l.dataIn[m].streams[h.stream-data].connected {
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
	c.lane = l
	m, _ := l.member(int(h.from))
	if h.stream >= data {
		s := &l.dataIn[m].streams[h.stream-data]
		s.connected = true
		n.startUser(l, &n.goroutines, func() { s.serve(c) }, func() { s.finish(c) })
		return
	}
	l.controlled[m] = true
	n.startLocked(&n.goroutines, func() { l.controlIn[m].serve(c) })
}

// serve reads c to its end and calls take for every message of the stream;
// take reads the payload. It reports whether the other end has left in good order.
// If the lane is closed meanwhile, the caller goes on with drain.
func (n *Network) serve(c *conn, in *incoming, take func(header) error) (left bool) {
	for {
		h, err := in.next()
		if err == nil {
			switch h.kind {
			case messageGoodbye:
				n.departed(c.rank)
				n.drop(c)
				return true
			case messageLaneClosed:
				// Whatever waits for more of it is given up when the lane is closed here.
				n.drop(c)
				return false
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
	if c.abandoned() {
		return false
	}
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
	if c.abandoned() {
		n.drop(c)
	}
}

// dial makes this rank's connection to a member for one stream. It starts the
// watcher of a control stream; that of a data stream comes later, see lend. Nil: the network cannot go on, the lane has
// been closed, or the member has left.
func (l *lane) dial(ctx context.Context, to int, s stream) *conn {
	n, rank := l.net, l.members[to]
	c, err := n.connect(ctx, n.hello(l, rank, s))
	if err != nil {
		if !n.ending() && !isClosed(l.closed) && !n.peers[rank].left.Load() {
			n.Abort(n.cannotConnect(rank, err))
		}
		return nil
	}
	c.lane = l
	if n.register(c) {
		if s == control {
			n.start(&n.goroutines, func() { n.watch(c) })
		}
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
