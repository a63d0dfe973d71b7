package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/collective"
	"github.com/gorovod/gorovod/internal/failpoint"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/operation"
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
	run     collective.Carrier
	quiet   bool // run has been closed, and nothing of it touches a buffer any more

	// Guarded by engine.mu.
	worker  *negotiate.Worker
	table   map[string]*Entry // pending, by name
	unnamed map[string]uint64 // how many operations without a name there were, by what their names begin with
	removed bool              // the process set is gone
	joining *Entry            // the Join that is pending; no tensors are submitted then
	outbox  [][]byte          // encoded Requests that found no room on the board
	unready []*Entry          // their input is not there yet
	behind  atomic.Int32      // len(outbox) + len(unready), readable without the lock
	// following is how many of unready follow other operations: these need not be looked at before.
	following atomic.Int32

	// The driver's.
	settings    settings
	coordinator *negotiate.Coordinator // on member 0
	arrivals    arrivals               // on member 0
	request     negotiate.Request      // decoded by the coordinator
	answers     []byteRecord           // Responses that found no room in the log, in order
	responses   []*negotiate.Response  // of the current batch, in log order
	plan        []negotiate.Batch      // what they make, in order of execution
	next        int                    // the first of plan not yet started
	current     execution
	batchAt     time.Time // when the last batch was read; only with a cycle time
	clock       int64     // when the current step began, for the records
	shut        bool      // the log was closed and what was left has failed
	scratch     []byte
	marks       []transport.Mark
	requests    []*negotiate.Request
	cards       []negotiate.CardGen

	// Handed to the board at every poll: made once, since each closure would be
	// an allocation.
	onStale   func(card, gen uint32)
	onRequest func(from []int, p []byte)
	heard     bool // one of them was called
}

type byteRecord []byte

func newLane(e *Engine, id int, incarnation uint32, members []int) (*lane, error) {
	t, err := e.net.OpenLane(id, incarnation, members)
	if err != nil {
		return nil, fmt.Errorf("open lane %d: %w", id, err)
	}
	run := collective.Carrier(nil)
	if e.opts.Carrier != nil && len(members) > 1 {
		if run, err = e.opts.Carrier(id, incarnation, members); err != nil {
			return nil, fmt.Errorf("open lane %d: %w", id, err)
		}
	} else {
		run = collective.NewLane(t, e.opts.Collective)
	}
	l := &lane{engine: e, id: id, members: members, board: t.Board, run: run, table: make(map[string]*Entry),
		unnamed: make(map[string]uint64), settings: e.opts.settings()}
	l.rank = l.member(e.opts.Rank)
	l.worker = negotiate.NewWorker(l.rank)
	l.onStale, l.onRequest = l.stale, l.answer
	if l.rank == 0 {
		l.coordinator = negotiate.NewCoordinator(members, t.Board, negotiate.Options{
			Capacity: e.opts.CacheCapacity, JoinAllOps: e.opts.JoinAllOps, FusionThreshold: e.opts.FusionThreshold})
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

// progress does what can be done now, and reports whether it did anything.
func (l *lane) progress() bool {
	worked := l.catchUp()
	l.lookAtMarks()
	if l.coordinator != nil && l.coordinate() {
		worked = true
	}
	if l.current.op != nil {
		before := l.run.Moved()
		l.pass()
		switch done, err := l.current.op.Advance(); {
		case err != nil:
			l.engine.net.Abort(err)
			return true
		case !done:
			return worked || l.run.Moved() != before
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
		return l.closed()
	}
	return worked
}

// pass tells tests that a collective has begun and not ended.
func (l *lane) pass() {
	if !failpoint.Enabled {
		return
	}
	if l.current.parts[0].resp.Type == operation.Broadcast {
		failpoint.Here("broadcast") // of a state, for one
	} else {
		failpoint.Here("collective")
	}
}

// drained reports that the log is closed and all of it has been executed.
func (l *lane) drained() bool {
	return l.board.Closed() && l.current.op == nil && l.next == len(l.plan)
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
	if t := l.engine.tuner; t != nil && l == l.engine.world && t.publish(l) {
		worked = true
	}
	l.heard = false
	l.board.Requests(l.onRequest)
	return worked || l.heard
}

// answer lets the coordinator take what some members have asked for in the same
// words, and publishes what it says.
func (l *lane) answer(from []int, p []byte) {
	l.heard = true
	err := l.request.Decode(p)
	var resps []*negotiate.Response
	if err == nil {
		l.traceRequest(from, &l.request)
		resps, err = l.coordinator.Step(from, &l.request)
	}
	if err != nil {
		l.engine.net.Abort(fmt.Errorf("request from %s: %w", l.engine.opts.Describe(l.members[from[0]]), err))
		return
	}
	for _, r := range resps {
		l.publish(r)
	}
}

// publish appends r to the log, after all that waits for room there.
func (l *lane) publish(r *negotiate.Response) {
	rec := byteRecord(r.Append(nil))
	if len(l.answers) > 0 || !l.board.Publish(rec) {
		l.answers = append(l.answers, rec)
	}
}

// nextBatch reads the next batch of the log, if there is one, and plans it.
func (l *lane) nextBatch() bool {
	if l.heldBack() > 0 {
		return false
	}
	records := l.board.Next()
	if len(records) == 0 {
		return false
	}
	e := l.engine
	if l.settings.cycleTime > 0 {
		l.batchAt = time.Now()
	}
	e.counters.Batches.Add(1)
	if err := l.read(records); err != nil {
		e.net.Abort(fmt.Errorf("log of lane %d: %w", l.id, err))
		return true
	}
	l.plan = negotiate.Fuse(l.plan[:0], l.responses, l.settings.fusionThreshold,
		negotiate.FuseOptions{Groups: e.opts.GroupsApart})
	l.next = 0
	l.traceBatch()
	return true
}

// read makes Responses of the records of a batch.
func (l *lane) read(records []transport.Record) error {
	l.responses = l.responses[:0]
	e := l.engine
	l.clock = time.Now().UnixNano()
	e.mu.Lock()
	defer e.mu.Unlock() // also of a panic: who ends the engine needs it
	for _, rec := range records {
		var resp *negotiate.Response
		var err error
		switch rec.Kind {
		case transport.RecordCard:
			if resp, err = l.worker.Card(rec.Card); err == nil {
				l.traceCompleted(rec.Card, resp)
			}
		case transport.RecordResponse:
			resp = new(negotiate.Response)
			if err = resp.Decode(rec.Payload); err == nil && resp.Type == operation.Tune {
				if err = l.tuned(resp); err == nil {
					continue
				}
			}
			if err == nil {
				l.worker.Apply(resp)
			}
		default:
			err = fmt.Errorf("unknown record kind %d", rec.Kind)
		}
		if err != nil {
			return err
		}
		l.responses = append(l.responses, resp)
		if en := l.table[resp.Name]; en != nil {
			en.agreed = true
			l.recordAgreed(en)
			if resp.Err == "" && en.refusal != nil {
				return fmt.Errorf("the other ranks execute %q, but this rank has refused it: %v", resp.Name, en.refusal)
			}
			if resp.Err == "" && !resp.Fits(&en.request, l.rank) {
				return fmt.Errorf("%q is to be executed as %v of %v in %v %v, and was submitted as %v of %v in %v",
					resp.Name, resp.Type, resp.DType, resp.Shape, resp.FirstDims, en.request.Type, en.request.DType,
					en.request.Shape)
			}
		}
	}
	return nil
}

// heldBack is how long the next batch must still wait for more tensors.
func (l *lane) heldBack() time.Duration {
	e := l.engine
	if l.settings.cycleTime <= 0 || e.closing.Load() {
		return 0
	}
	return time.Until(l.batchAt.Add(l.settings.cycleTime))
}

// complete ends an Entry; nil stands for a tensor that this rank, having joined,
// has not submitted.
func (l *lane) complete(en *Entry, err *Error) {
	if en == nil {
		return
	}
	l.engine.mu.Lock()
	l.forget(en, err)
	l.engine.mu.Unlock()
	l.conclude(en, err)
}

// completeParts is complete for all parts of the current execution.
func (l *lane) completeParts() {
	parts := l.current.parts
	l.engine.mu.Lock()
	for i := range parts {
		if en := parts[i].entry; en != nil {
			l.forget(en, parts[i].err)
		}
	}
	l.engine.mu.Unlock()
	for i := range parts {
		if en := parts[i].entry; en != nil {
			l.conclude(en, parts[i].err)
		}
	}
}

// forget takes an Entry out of the table. The caller holds engine.mu.
func (l *lane) forget(en *Entry, err *Error) {
	delete(l.table, en.request.Name)
	l.engine.inUse.ended(en)
	l.letFollow(en, err)
	l.recordEnd(en, err)
	if l.joining == en {
		l.joining = nil
	}
}

// conclude publishes the outcome of an Entry that has been forgotten.
func (l *lane) conclude(en *Entry, err *Error) {
	e := l.engine
	l.traceEnd(en)
	e.counters.Ops.Add(1)
	e.pending.Add(-1)
	en.finish(err)
}

// closed fails what is still pending after the log was closed, and reports whether it could. A set's
// log may be known to be closed before the world's, whose end says who was the first to leave.
func (l *lane) closed() bool {
	e := l.engine
	if e.closing.Load() {
		l.shut = true
		return true // Shutdown does it
	}
	if !e.left() {
		return false
	}
	l.shut = true
	if l == e.world {
		// The other sets end, too; their members may learn of it from this rank. What
		// they have agreed on is executed first: progress ends the engine after that.
		for _, other := range *e.lanes.Load() {
			if other.board.ClosedBy() < 0 {
				other.board.Close()
			}
		}
	}
	l.failAll(errLeft)
	return true
}

// failAll completes everything pending with reason. Nothing of the lane touches
// the operations' memory any more.
func (l *lane) failAll(reason *Error) {
	e := l.engine
	l.current.op = nil
	l.plan, l.next = l.plan[:0], 0
	e.mu.Lock()
	l.clock = time.Now().UnixNano()
	left := make([]*Entry, 0, len(l.table))
	for name, en := range l.table {
		left = append(left, en)
		l.recordEnd(en, reason)
		delete(l.table, name)
		e.inUse.ended(en)
	}
	l.outbox, l.unready, l.joining = nil, nil, nil
	l.behind.Store(0)
	l.following.Store(0)
	e.mu.Unlock()
	if len(left) > 0 { // the words may take a moment: not for nothing
		reason = e.words(reason)
	}
	e.pending.Add(-int64(len(left)))
	for _, en := range left {
		en.finish(reason)
	}
}

// free returns the lane's own memory, after run and the network's part have been closed.
func (l *lane) free() {
	if !l.quiet {
		return // it may still be written to
	}
	l.current.buffer.free()
	l.current.spare.free()
}
