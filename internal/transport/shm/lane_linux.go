package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/transport"
	"github.com/gorovod/gorovod/internal/transport/board"
)

// openLane is what this rank knows of a lane id.
type openLane struct {
	lane        *laneBoard // nil while this rank has not opened it
	incarnation uint64     // the last one that this rank opened
}

// OpenLane makes a lane. Its lowest member reserves and formats the lane's region,
// the others wait for that, at most the start timeout. If it fails, the network
// is aborted, so that nobody waits for this member. An id can be opened again once
// all its members have closed it.
//
// Incarnations are counted in the segment itself: the argument is not needed.
func (n *Network) OpenLane(id int, _ uint32, members []int) (*transport.Lane, error) {
	me, err := n.checkMembers(id, members)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Err(); err != nil {
		return nil, err
	}
	o := &n.lanes[id]
	if o.lane != nil {
		return nil, fmt.Errorf("shm: lane %d is open already", id)
	}
	lane, err := n.openLane(id, me, members)
	if err != nil {
		err = fmt.Errorf("open lane %d of ranks %v: rank %d: %w", id, members, n.cfg.Rank, err)
		n.Abort(err)
		return nil, err
	}
	return lane, nil
}

func (n *Network) openLane(id, me int, members []int) (*transport.Lane, error) {
	o, st := &n.lanes[id], &n.head.regs().lanes[id]
	l := layoutOf(len(members), n.cfg.Slots)
	off := id * laneBytes(n.cfg.Size, n.cfg.Slots)
	region := n.seg.mem[off:][:l.size:l.size]
	bc := boardConfig(len(members), n.cfg.Slots)

	if me == 0 {
		err := n.awaitLane("its former members to close it", func() bool {
			return st.state.CompareAndSwap(laneFree, laneFormatting)
		})
		if err != nil {
			return nil, err
		}
		if err := n.formatLane(st, region, off, bc, members); err != nil {
			st.state.Store(laneFree)
			return nil, err
		}
	} else {
		want := hashMembers(members)
		err := n.awaitLane(fmt.Sprintf("rank %d to make it", members[0]), func() bool {
			return st.state.Load() == laneReady && st.incarnation.Load() > o.incarnation && st.members.Load() == want
		})
		if err != nil {
			return nil, err
		}
	}
	b, err := board.Attach(region, bc)
	if err != nil {
		return nil, err
	}
	o.incarnation = st.incarnation.Load()
	o.lane = newLaneBoard(n, b, me, members)
	return &transport.Lane{Board: o.lane, Shared: newStaging(n.head, region, l, me, members)}, nil
}

// formatLane prepares the region, which nobody else touches now.
func (n *Network) formatLane(st *laneState, region []byte, off int, bc board.Config, members []int) error {
	if err := reserve(n.seg.fd, n.seg.off+off, len(region)); err != nil {
		return err
	}
	if st.incarnation.Load() > 0 {
		clear(region)
	}
	if _, err := board.Format(region, bc); err != nil {
		return err
	}
	st.departed.Store(0)
	st.members.Store(hashMembers(members))
	st.incarnation.Add(1)
	st.state.Store(laneReady)
	return nil
}

// awaitLane waits until ready, an abort or the start timeout.
func (n *Network) awaitLane(what string, ready func() bool) error {
	deadline := time.Now().Add(n.cfg.Timeout)
	for nap := 10 * time.Microsecond; !ready(); nap = min(2*nap, time.Millisecond) {
		if err := n.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for %s", n.cfg.Timeout, what)
		}
		time.Sleep(nap)
	}
	return nil
}

// CloseLane gives up this rank's part in a lane, so that the id can be used again
// once all members have done so. It belongs to the driver, which uses the lane no
// more. Closing a lane that is not open is an error.
func (n *Network) CloseLane(id int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id < 0 || id >= MaxLanes || n.closed || n.lanes[id].lane == nil {
		return errors.New("shm: the lane to close is not open")
	}
	o := &n.lanes[id]
	o.lane.quiesce()
	st := &n.head.regs().lanes[id]
	if int(st.departed.Add(1)) == len(o.lane.members) {
		st.state.Store(laneFree)
	}
	o.lane = nil
	runtime.KeepAlive(n.head)
	return nil
}

// hashMembers tells member lists apart.
func hashMembers(members []int) uint64 {
	h := fnv.New64a()
	for _, m := range members {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(m)))
	}
	return h.Sum64()
}

// laneBoard is this member's view of a lane's board. What the board finds wrong
// aborts the network.
type laneBoard struct {
	n       *Network
	b       *board.Board
	me      int
	members []int // world ranks

	// use is held for reading by Mark and Post, which may come from any goroutine
	// while the memory is being taken away.
	use  sync.RWMutex
	gone bool
}

func newLaneBoard(n *Network, b *board.Board, me int, members []int) *laneBoard {
	l := &laneBoard{n: n, b: b, me: me, members: append([]int(nil), members...)}
	b.SetStop(n.Err)
	b.SetWake(func(member int) { n.head.ring(l.members[member]) })
	b.SetCrowded(n.crowded())
	return l
}

// quiesce returns when no Mark or Post is running; later ones do nothing.
func (l *laneBoard) quiesce() {
	l.use.Lock()
	l.gone = true
	l.use.Unlock()
}

func (l *laneBoard) ringAll() {
	for _, r := range l.members {
		l.n.head.ring(r)
	}
}

func (l *laneBoard) ok(err error) bool {
	if err != nil {
		l.n.Abort(err)
	}
	return err == nil
}

// Mark returns true also when the lane is closed or the network has failed: the
// request will be failed with that cause, there is no use in sending it again.
func (l *laneBoard) Mark(slot, gen uint32) bool {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.gone {
		return true
	}
	return l.marked(l.b.Mark(l.me, slot, gen))
}

// MarkGroup is as Mark.
func (l *laneBoard) MarkGroup(marks []transport.Mark) bool {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.gone {
		return true
	}
	return l.marked(l.b.MarkGroup(l.me, marks))
}

func (l *laneBoard) marked(r board.Result, err error) bool {
	if !l.ok(err) {
		return true
	}
	if r == board.Completed {
		l.ringAll()
	}
	return r != board.Stale
}

// Stale does nothing: Mark has the last word.
func (l *laneBoard) Stale(func(slot, gen uint32)) {}

func (l *laneBoard) Post(request []byte) bool {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.gone {
		return true
	}
	posted, err := l.b.Post(l.me, request)
	if !l.ok(err) {
		return true
	}
	if posted {
		l.n.head.ring(l.members[0])
	}
	return posted
}

func (l *laneBoard) Next() []transport.Record {
	batch, err := l.b.Next(l.me)
	if !l.ok(err) {
		return nil
	}
	return batch
}

func (l *laneBoard) Closed() bool { return l.b.Drained(l.me) }

func (l *laneBoard) Close() {
	l.ok(l.b.Close(l.me))
	l.ringAll()
}

func (l *laneBoard) ClosedBy() int { return l.b.ClosedBy() }

func (l *laneBoard) Requests(f func(from int, p []byte)) { l.ok(l.b.Requests(f)) }

func (l *laneBoard) Publish(response []byte) bool {
	published, err := l.b.Publish(response)
	l.ok(err)
	if published {
		l.ringAll()
	}
	return published
}

func (l *laneBoard) Acquire() (slot, gen uint32, ok bool) {
	slot, gen, ok, err := l.b.Acquire()
	l.ok(err)
	return slot, gen, ok
}

func (l *laneBoard) Retire(slot uint32) (marked []int, ok bool) {
	marked, ok, err := l.b.Retire(slot)
	l.ok(err)
	return marked, ok
}

func (l *laneBoard) Marked(slot uint32) []int {
	marked, err := l.b.Marked(slot)
	l.ok(err)
	return marked
}

var _ transport.Board = (*laneBoard)(nil)
