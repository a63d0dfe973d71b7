package engine

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/gorovod/gorovod/internal/collective"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/transport"
)

// lane is the execution of one process set: a log of its own, a batch of its
// own, never waiting for another lane.
type lane struct {
	engine  *Engine
	id      int
	members []int // world ranks, ascending
	rank    int   // this rank's index in members
	board   transport.Board
	run     *collective.Lane

	// Guarded by engine.mu.
	worker  *negotiate.Worker
	table   map[string]*Entry // pending, by name
	outbox  []*Entry          // their Requests found no room on the board
	unready []*Entry          // their input is not there yet
	behind  atomic.Int32      // len(outbox) + len(unready), readable without the lock

	// The driver's.
	coordinator *negotiate.Coordinator // on member 0
	request     negotiate.Request      // decoded by the coordinator
	answers     []byteRecord           // Responses that found no room in the log, in order
	responses   []*negotiate.Response  // of the current batch, in log order
	plan        []negotiate.Batch      // what they make, in order of execution
	next        int                    // the first of plan not yet started
	current     execution
	shut        bool // the log was closed and what was left has failed
	scratch     []byte

	// Handed to the board at every poll: made once, since each closure would be
	// an allocation.
	onStale   func(slot, gen uint32)
	onRequest func(from int, p []byte)
	heard     bool // one of them was called
}

type byteRecord []byte

func newLane(e *Engine, id int, members []int) (*lane, error) {
	t, err := e.net.OpenLane(id, members)
	if err != nil {
		return nil, fmt.Errorf("open lane %d: %w", id, err)
	}
	l := &lane{engine: e, id: id, members: members, board: t.Board, run: collective.NewLane(t), table: make(map[string]*Entry)}
	l.rank = l.member(e.opts.Rank)
	l.worker = negotiate.NewWorker(l.rank)
	l.onStale, l.onRequest = l.stale, l.answer
	if l.rank == 0 {
		l.coordinator = negotiate.NewCoordinator(members, t.Board, negotiate.Options{Capacity: e.opts.CacheCapacity, FusionThreshold: e.opts.FusionThreshold})
	}
	return l, nil
}

// member is the index of a world rank in the lane, -1 for a stranger.
func (l *lane) member(rank int) int {
	if l.id == 0 {
		if rank < 0 || rank >= len(l.members) {
			return -1
		}
		return rank
	}
	for i, r := range l.members {
		if r == rank {
			return i
		}
	}
	return -1
}

// submit puts en into the table and announces it to the other members. All of
// it happens under engine.mu, so that nothing is announced on a closed network.
func (l *lane) submit(en *Entry) *Error {
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.failure.Load(); f != nil {
		return f
	}
	if _, taken := l.table[en.request.Name]; taken {
		return duplicateName(en.request.Name)
	}
	slot, gen, cached := l.worker.Lookup(&en.request)
	if cached {
		resp, err := l.worker.Slot(slot)
		if err != nil {
			return &Error{UnknownError, err.Error()}
		}
		en.request.Name = resp.Name // the caller's memory may go
	} else {
		en.request.Name = strings.Clone(en.request.Name)
	}
	l.table[en.request.Name] = en
	e.pending.Add(1)
	if en.op.Ready != nil && !en.op.Ready() {
		l.unready = append(l.unready, en)
		l.behind.Add(1)
		e.bell.Ring()
		return nil
	}
	l.announce(en, slot, gen, cached)
	return nil
}

// announce marks the slot of a request seen before, or posts the request in
// full. The caller holds engine.mu.
func (l *lane) announce(en *Entry, slot, gen uint32, cached bool) {
	e := l.engine
	if cached {
		en.slot, en.gen = slot, gen
		e.counters.Marks.Add(1)
		if l.board.Mark(slot, gen) {
			return
		}
	}
	en.slot = negotiate.NoSlot
	e.counters.Requests.Add(1)
	l.scratch = en.request.Append(l.scratch[:0])
	if len(l.outbox) > 0 || !l.board.Post(l.scratch) {
		l.outbox = append(l.outbox, en)
		l.behind.Add(1)
		e.bell.Ring()
	}
}

// progress does what can be done now, and reports whether it did anything.
func (l *lane) progress() bool {
	worked := l.catchUp()
	if l.coordinator != nil && l.coordinate() {
		worked = true
	}
	if l.current.op != nil {
		switch done, err := l.current.op.Advance(); {
		case err != nil:
			l.engine.net.Abort(err)
			return true
		case !done:
			return worked
		}
		l.finishCurrent()
		worked = true
	}
	for l.current.op == nil {
		if l.next == len(l.plan) {
			if !l.nextBatch() {
				break
			}
		}
		worked = true
		if l.next < len(l.plan) {
			l.next++
			l.start(&l.plan[l.next-1])
		}
	}
	if !worked && !l.shut && l.board.Closed() {
		l.closed()
		return true
	}
	return worked
}

// drained reports that the log is closed and all of it has been executed.
func (l *lane) drained() bool {
	return l.board.Closed() && l.current.op == nil && l.next == len(l.plan)
}

// catchUp announces what could not be announced before: requests without room,
// inputs that have become ready, marks that turned out to be of an old generation.
func (l *lane) catchUp() bool {
	l.heard = false
	l.board.Stale(l.onStale)
	worked := l.heard
	if l.behind.Load() == 0 {
		return worked
	}
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(l.outbox) > 0 {
		l.scratch = l.outbox[0].request.Append(l.scratch[:0])
		if !l.board.Post(l.scratch) {
			break
		}
		l.outbox = append(l.outbox[:0], l.outbox[1:]...)
		worked = true
	}
	keep := l.unready[:0]
	for _, en := range l.unready {
		if !en.op.Ready() {
			keep = append(keep, en)
			continue
		}
		worked = true
		slot, gen, cached := l.worker.Lookup(&en.request)
		l.announce(en, slot, gen, cached)
	}
	l.unready = keep
	l.behind.Store(int32(len(l.outbox) + len(l.unready)))
	return worked
}

// stale posts in full what was marked under an old generation of a slot.
func (l *lane) stale(slot, gen uint32) {
	l.heard = true
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, en := range l.table {
		if en.slot == slot && en.gen == gen {
			l.announce(en, 0, 0, false)
			return
		}
	}
}

// coordinate answers the requests that have come in. Member 0 only.
func (l *lane) coordinate() bool {
	worked := false
	for len(l.answers) > 0 {
		if !l.board.Publish(l.answers[0]) {
			return worked
		}
		l.answers = l.answers[1:]
		worked = true
	}
	l.heard = false
	l.board.Requests(l.onRequest)
	return worked || l.heard
}

// answer lets the coordinator take one request, and publishes what it says.
func (l *lane) answer(from int, p []byte) {
	l.heard = true
	err := l.request.Decode(p)
	var resps []*negotiate.Response
	if err == nil {
		resps, err = l.coordinator.Step(from, &l.request)
	}
	if err != nil {
		l.engine.net.Abort(fmt.Errorf("request from %s: %w", l.engine.opts.Describe(l.members[from]), err))
		return
	}
	for _, r := range resps {
		rec := byteRecord(r.Append(nil))
		if len(l.answers) > 0 || !l.board.Publish(rec) {
			l.answers = append(l.answers, rec)
		}
	}
}

// nextBatch reads the next batch of the log, if there is one, and plans it.
func (l *lane) nextBatch() bool {
	records := l.board.Next()
	if len(records) == 0 {
		return false
	}
	e := l.engine
	e.counters.Batches.Add(1)
	l.responses = l.responses[:0]
	e.mu.Lock()
	for _, rec := range records {
		var resp *negotiate.Response
		var err error
		switch rec.Kind {
		case transport.RecordSlot:
			resp, err = l.worker.Slot(rec.Slot)
		case transport.RecordResponse:
			resp = new(negotiate.Response)
			if err = resp.Decode(rec.Payload); err == nil {
				l.worker.Apply(resp)
			}
		default:
			err = fmt.Errorf("unknown record kind %d", rec.Kind)
		}
		if err != nil {
			e.mu.Unlock()
			e.net.Abort(fmt.Errorf("log of lane %d: %w", l.id, err))
			return true
		}
		l.responses = append(l.responses, resp)
	}
	e.mu.Unlock()
	l.plan = negotiate.Fuse(l.plan[:0], l.responses, e.opts.FusionThreshold, negotiate.FuseOptions{})
	l.next = 0
	return true
}

// entry takes the pending Entry that a Response speaks of.
func (l *lane) entry(resp *negotiate.Response) *Entry {
	l.engine.mu.Lock()
	en := l.table[resp.Name]
	l.engine.mu.Unlock()
	return en
}

// complete ends an Entry.
func (l *lane) complete(en *Entry, err *Error) {
	e := l.engine
	e.mu.Lock()
	delete(l.table, en.request.Name)
	e.mu.Unlock()
	e.counters.Ops.Add(1)
	en.finish(err)
	e.pending.Add(-1)
}

// closed fails what is still pending after the log was closed by some rank.
func (l *lane) closed() {
	l.shut = true
	e := l.engine
	if e.closing.Load() {
		return // Shutdown does it
	}
	reason := shutDownText
	if by := l.board.ClosedBy(); by >= 0 {
		rank := l.members[by]
		who := ""
		if e.opts.Cause != nil && e.pending.Load() > 0 {
			who = e.opts.Cause(rank)
		}
		if who == "" {
			who = e.opts.Describe(rank) + " has shut down"
		}
		reason += " The first to leave: " + who + "."
	}
	e.fail(&Error{UnknownError, reason})
}

// failAll completes everything pending with reason. The network is closed.
func (l *lane) failAll(reason *Error) {
	e := l.engine
	l.current.op = nil
	l.plan, l.next = l.plan[:0], 0
	e.mu.Lock()
	left := make([]*Entry, 0, len(l.table))
	for name, en := range l.table {
		left = append(left, en)
		delete(l.table, name)
	}
	l.outbox, l.unready = nil, nil
	e.mu.Unlock()
	for _, en := range left {
		en.finish(reason)
		e.pending.Add(-1)
	}
}
