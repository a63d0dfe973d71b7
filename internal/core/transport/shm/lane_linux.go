package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"time"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/core/transport/board"
)

// openLane is this rank's state of a lane id.
type openLane struct {
	open        bool
	members     int
	board       *laneBoard // nil if not open, or opened as a Part
	part        *Part      // nil if not open
	incarnation uint64     // the last one that this rank opened; guarded by opening
}

// Part is the memory that the members of a lane on this host share, while other members are elsewhere: staging, and
// boards of the requested shapes. The boards' members and readers are the members on this host, in order.
type Part struct {
	Shared transport.Shared
	Boards []*board.Board
	places []int
	me     int
	data   *staging
	head   *header
}

// Ring wakes the driver of a member of the part.
func (p *Part) Ring(member int) { p.head.ring(p.places[member]) }

// OpenLane makes a lane. Its lowest member reserves and formats the lane's region; the others wait for that, at most
// the start timeout. If OpenLane fails, it aborts the network, so that nobody waits for this member. After all members
// have closed an id, it can be opened again.
//
// The segment itself counts incarnations, so the argument is not needed.
func (n *Network) OpenLane(id int, _ uint32, members []int) (*transport.Lane, error) {
	p, me, err := n.openPart(id, members, boardConfig(len(members), n.cfg.Cards))
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errClosed
	}
	l := &laneBoard{n: n, b: p.Boards[0], me: me, places: p.places}
	n.lanes[id].board = l
	lane := &transport.Lane{Board: l, Shared: p.Shared}
	if me == 0 {
		lane.Coordination = &coordination{l}
	}
	return lane, nil
}

// OpenPart is OpenLane for those members of a lane that are on this host, with boards for the caller, which take at
// most Config.BoardBytes. The caller must stop all use of the boards before it calls CloseLane or Close.
func (n *Network) OpenPart(id int, members []int, boards ...board.Config) (*Part, error) {
	p, _, err := n.openPart(id, members, boards...)
	return p, err
}

func (n *Network) openPart(id int, members []int, shapes ...board.Config) (*Part, int, error) {
	places, me, err := n.checkMembers(id, members)
	if err != nil {
		return nil, 0, err
	}
	n.opening.Lock()
	defer n.opening.Unlock()
	if err := n.Err(); err != nil {
		return nil, 0, err
	}
	if n.isOpen(id) {
		return nil, 0, fmt.Errorf("shm: lane %d is open already", id)
	}
	p, err := n.openRegion(id, me, members, places, shapes)
	if err != nil {
		err = fmt.Errorf("open lane %d of ranks %v: %s: %w", id, members, n.cfg.Describe(members[me]), err)
		n.Abort(err)
		return nil, 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	o := &n.lanes[id]
	o.open, o.members, o.part = true, len(members), p
	return p, me, nil
}

func (n *Network) isOpen(id int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lanes[id].open
}

func (n *Network) openRegion(id, me int, members, places []int, shapes []board.Config) (*Part, error) {
	o, st := &n.lanes[id], &n.head.regs().lanes[id]
	l := layoutOf(BoardBytes(shapes...), len(members))
	room := laneBytes(n.cfg)
	if l.size > room {
		return nil, fmt.Errorf("its boards take %d bytes, %d are left for them", BoardBytes(shapes...),
			n.cfg.BoardBytes)
	}
	off := id * room
	region := n.seg.mem[off:][:l.size:l.size]

	if me == 0 {
		err := n.awaitLane("its former members to close it", func() bool {
			return st.state.CompareAndSwap(laneFree, laneFormatting)
		})
		if err != nil {
			return nil, err
		}
		if err := n.formatLane(st, region, off, shapes, members); err != nil {
			st.state.Store(laneFree)
			return nil, err
		}
	} else {
		want := hashRanks(members)
		err := n.awaitLane(n.cfg.Describe(members[0])+" to make it", func() bool {
			return st.state.Load() == laneReady && st.incarnation.Load() > o.incarnation && st.members.Load() == want
		})
		if err != nil {
			return nil, err
		}
	}
	prefault(region)
	data := newStaging(n, region, l, me, places)
	p := &Part{Shared: data, places: places, me: me, data: data, head: n.head}
	for _, c := range shapes {
		b, err := board.Attach(region, c)
		if err != nil {
			return nil, err
		}
		b.SetStop(n.Err)
		b.SetWake(p.Ring)
		b.SetCrowded(n.crowded())
		p.Boards = append(p.Boards, b)
		region = region[roundUp(board.Bytes(c), 64):]
	}
	o.incarnation = st.incarnation.Load()
	if failpoint.Enabled && id == 0 {
		p.share()
	}
	return p, nil
}

// share lets tests damage the words on which the lane depends.
func (p *Part) share() {
	registers, cards, mailboxes := p.Boards[0].Vital()
	failpoint.Share("board", registers...)
	failpoint.Share("cards", cards...)
	failpoint.Share("mailboxes", mailboxes...)
	failpoint.Share("counters", p.data.words()...)
}

// formatLane prepares the region. Nobody else touches it now.
func (n *Network) formatLane(st *laneState, region []byte, off int, shapes []board.Config, members []int) error {
	if err := reserve(n.seg.fd, n.seg.off+off, len(region)); err != nil {
		return err
	}
	if st.incarnation.Load() > 0 {
		clear(region)
	}
	for _, c := range shapes {
		if _, err := board.Format(region, c); err != nil {
			return err
		}
		region = region[roundUp(board.Bytes(c), 64):]
	}
	st.departed.Store(0)
	st.members.Store(hashRanks(members))
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

// CloseLane gives up this rank's part in a lane, so that the id can be used again once all members have done so. The
// driver calls it, and then no longer uses the lane. Closing a lane that is not open is an error.
func (n *Network) CloseLane(id int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id < 0 || id >= MaxLanes || n.closed || !n.lanes[id].open {
		return errors.New("shm: the lane to close is not open")
	}
	o := &n.lanes[id]
	if o.board != nil {
		o.board.quiesce()
	}
	st := &n.head.regs().lanes[id]
	if int(st.departed.Add(1)) == o.members {
		st.state.Store(laneFree)
	}
	o.open, o.board, o.part = false, nil, nil
	runtime.KeepAlive(n.head)
	return nil
}

// hashRanks is a hash of a list of ranks, to compare lists.
func hashRanks(ranks []int) uint64 {
	h := fnv.New64a()
	for _, r := range ranks {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(r)))
	}
	return h.Sum64()
}

// laneBoard is this member's view of a lane's board. An error of the board aborts the network.
type laneBoard struct {
	n      *Network
	b      *board.Board
	me     int
	places []int // of the members

	// Mark and Post hold use for reading, because any goroutine may call them while the memory is being unmapped.
	use  sync.RWMutex
	gone bool
}

// quiesce returns when no Mark or Post is running; later calls do nothing.
func (l *laneBoard) quiesce() {
	l.use.Lock()
	l.gone = true
	l.use.Unlock()
}

func (l *laneBoard) ringAll() {
	for _, p := range l.places {
		l.n.head.ring(p)
	}
}

func (l *laneBoard) ringForRecord() {
	for _, p := range l.places {
		l.n.head.ringForRecord(p)
	}
}

func (l *laneBoard) ok(err error) bool {
	if err != nil {
		l.n.Abort(err)
	}
	return err == nil
}

// Mark returns true also if the lane is closed or the network has failed: the request fails anyway, so the caller need
// not post it.
func (l *laneBoard) Mark(card, gen uint32) bool {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.gone {
		return true
	}
	return l.marked(l.b.Mark(l.me, card, gen))
}

// MarkLast treats a closed lane as Mark does.
func (l *laneBoard) MarkLast(card, gen uint32) bool {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.gone {
		return true
	}
	return l.marked(l.b.MarkLast(l.me, card, gen))
}

// MarkGroup treats a closed lane as Mark does.
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
		l.ringForRecord()
	}
	return r != board.Stale
}

// TakeStale does nothing, because Mark's answer is final.
func (l *laneBoard) TakeStale(func(card, gen uint32)) {}

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
		l.n.head.ring(l.places[0])
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

func (l *laneBoard) Last(card uint32) int { return int(l.b.Last(card)) }

func (l *laneBoard) Closed() bool { return l.b.Drained(l.me) }

func (l *laneBoard) Close() {
	l.ok(l.b.Close(l.me))
	l.ringAll()
}

func (l *laneBoard) ClosedBy() int { return l.b.ClosedBy() }

var _ transport.Board = (*laneBoard)(nil)
