package tcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/core/transport/treeboard"
)

// lane is the part of a network that serves one process set.
type lane struct {
	net         *Network
	id          int
	incarnation uint32
	members     []int // world ranks
	me          int   // this rank's place among them
	board       treeboard.Board

	closed chan struct{} // by CloseLane
	// ctx and lastCtx derive from the network's. CloseLane calls cancel.
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
	// The driver's: the members with which an operation may be outstanding.
	sending   []*dataOut
	receiving []*dataIn

	linked []int         // the members that send frames to this one
	polls  atomic.Uint32 // counts the driver's polls for frames

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

// admit checks whether this lane can take a connection. Network.mu is held.
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

// startUser is startLocked for use, which may touch buffers posted to l. Afterwards it runs the function that use
// returns, unless that is nil. That function touches no posted buffer.
func (n *Network) startUser(l *lane, group *sync.WaitGroup, use func() (after func())) {
	if isClosed(l.closed) || n.ended {
		return
	}
	l.using.Add(1)
	n.startLocked(group, func() {
		if after := l.use(use); after != nil {
			after()
		}
	})
}

func (l *lane) use(use func() (after func())) (after func()) {
	defer l.using.Done()
	return use()
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
