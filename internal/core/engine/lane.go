package engine

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/table"
	"github.com/gorovod/gorovod/internal/core/transport"
)

// lane executes the operations of one process set. It has a log and a batch of its own, and never waits for another
// lane.
type lane struct {
	engine      *Engine
	id          int
	incarnation uint32
	members     []int           // world ranks, ascending
	rank        int             // this rank's index in members
	part        *transport.Lane // the network's part, of which board, coordination and poller are parts
	board       transport.Board
	// coordination is the coordinator's view of the board, on member 0.
	coordination transport.Coordination
	poller       transport.BoardPoller // nil where the board needs no turn
	run          collective.Carrier
	can          collective.Abilities // run's
	device       DeviceCarrier        // nil before the first operation on memory of a device
	early        early
	quiet        bool       // the carriers have been closed, and touch no buffer any more
	filesCalls   sync.Mutex // held by a Save or Load of a table

	// Guarded by engine.mu.
	worker  *negotiate.Worker
	table   map[string]*Entry // pending, by name
	unnamed map[string]uint64 // the number of operations without a name so far, by the prefix of their names
	// refused holds calls that check has refused, by name, the oldest first: see refused.go.
	refused map[string][]*Entry
	tables  map[int]*table.Table // by number: see tables.go
	uses    []*tableUse          // of tables, in the order in which they were made
	removed bool                 // the process set is gone
	joining *Entry               // the Join that is pending; no tensors are submitted then
	outbox  [][]byte             // encoded Requests that found no room on the board
	unready []*Entry             // their input is not there yet, or they follow others
	behind  atomic.Int32         // len(outbox) + len(unready), readable without the lock
	// following is the number of unready operations that follow other operations. catchUp need not look at these.
	following atomic.Int32

	// departure is set once: a rank has left, and nothing more is accepted. Without KeepSets only the world has one.
	departure atomic.Pointer[departure]

	settings settings // the driver's; changed under engine.mu

	// The driver's.
	coordinator *negotiate.Coordinator // on member 0
	arrivals    arrivals               // on member 0
	request     negotiate.Request      // decoded by the coordinator
	answers     [][]byte               // Responses that found no room in the log, in order
	responses   []*negotiate.Response  // of the current batch, in log order
	answered    []*Entry               // what responses answer; nil: this rank has not submitted it
	sequences   []uint64               // the places of responses in the log
	plan        []negotiate.Batch      // responses, fused, in order of execution
	next        int                    // the first of plan not yet started
	current     execution
	nans        nanCheck           // of the batch that is about to begin
	sparse      *sparse            // nil before the first Pull or Push
	batchAt     time.Time          // when the last batch was read; only with a cycle time
	clock       moment             // when the current step began, for the records
	sequence    uint64             // of the last record read from the log: the same on all members, and never twice
	counted     [2]collective.Sent // what figures have of the Sent of run and of device
	waitedUntil moment             // the end of the last wait that figures count
	timely      bool               // clock is the time at which the next batch begins, too
	shut        bool               // the log was closed, and the operations left in the lane have failed
	scratch     []byte
	marks       []transport.Mark
	requests    []*negotiate.Request
	cards       []negotiate.CardGen

	// The driver hands these to the board at every poll. They are made once, because each closure would be an
	// allocation.
	onStale   func(card, gen uint32)
	onRequest func(from []int, p []byte)
	onStage   func(collective.Stage) // handed to run where there is a timeline
	heard     bool                   // onStale or onRequest was called
}

func newLane(e *Engine, id int, incarnation uint32, members []int) (*lane, error) {
	t, err := e.net.OpenLane(id, incarnation, members)
	if err != nil {
		return nil, fmt.Errorf("open lane %d: %w", id, err)
	}
	l := &lane{engine: e, id: id, incarnation: incarnation, members: members, part: t, board: t.Board,
		coordination: t.Coordination, poller: t.Poller, table: make(map[string]*Entry),
		unnamed: make(map[string]uint64), refused: make(map[string][]*Entry),
		settings: e.opts.settings(), sequence: uint64(incarnation) << 32}
	if e.opts.Carrier != nil && len(members) > 1 {
		if l.run, err = e.opts.Carrier(l.opening()); err != nil {
			return nil, fmt.Errorf("open lane %d: %w", id, err)
		}
	} else {
		l.run = collective.NewLane(t, e.opts.Collective)
	}
	l.can = l.run.Can()
	l.early = l.newEarly()
	l.settings.early = l.early.bytes(e.opts.EarlyBytes)
	l.boundEarly()
	l.tuneOver(e.links.among(members))
	l.rank = l.member(e.opts.Rank)
	l.worker = negotiate.NewWorker(l.rank)
	l.onStale, l.onRequest = l.stale, l.answer
	if e.opts.Timeline != nil {
		l.onStage = l.traceStage
	}
	if l.rank == 0 {
		l.coordinator = negotiate.NewCoordinator(members, t.Coordination, negotiate.Options{
			Capacity: e.opts.CacheCapacity, JoinAllOps: e.opts.JoinAllOps, FusionThreshold: e.opts.FusionThreshold})
	}
	return l, nil
}

// opening is what those get who make the lane's carriers.
func (l *lane) opening() Opening {
	return Opening{l.id, l.incarnation, l.members, l.part, l.engine.bell}
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

// progress does all that can be done now, and reports whether it did anything.
func (l *lane) progress() bool {
	if l.poller != nil {
		l.poller.Poll()
	}
	worked := l.catchUp()
	l.passAhead()
	l.lookAtMarks()
	if l.coordinator != nil && l.coordinate() {
		worked = true
	}
	if l.current.op != nil {
		before := l.current.by.Moved()
		l.pass()
		switch done, err := l.current.op.Advance(); {
		case err != nil:
			l.engine.net.Abort(err)
			return true
		case !done:
			return worked || l.current.by.Moved() != before || l.current.then != nil && l.checking()
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

// pass has the failpoints of a collective that has begun and not ended.
func (l *lane) pass() {
	if !failpoint.Enabled {
		return
	}
	if l.current.parts[0].resp.Type == operation.Broadcast {
		failpoint.Here("broadcast") // for example of a state
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
	if len(l.answers) > 0 {
		if worked = l.publish(); len(l.answers) > 0 {
			return worked
		}
	}
	if t := l.engine.tuner; t != nil && l == l.engine.world && t.publish(l) {
		worked = true
	}
	l.heard = false
	l.coordination.TakeRequests(l.onRequest)
	return worked || l.heard
}

// answer gives the coordinator a Request that the members in from have posted alike, and publishes the Responses.
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
	l.publish(resps...)
}

// publish appends resps to the log, after all Responses that wait for room there, and reports whether there was room
// for any. Where there is room, the Responses of a group are in one batch.
func (l *lane) publish(resps ...*negotiate.Response) bool {
	for _, r := range resps {
		l.answers = append(l.answers, r.Append(nil))
	}
	if len(l.answers) == 0 {
		return false
	}
	n := l.coordination.Publish(l.answers...)
	l.answers = slices.Delete(l.answers, 0, n)
	return n > 0
}

// nextBatch reads the next batch of the log, if there is one, and plans it.
func (l *lane) nextBatch() bool {
	if l.heldBack() > 0 {
		return false
	}
	if l.poller != nil {
		l.poller.Cut()
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
	o := negotiate.FuseOptions{Groups: e.opts.GroupsApart}
	if l.early.some {
		o.Results = l.early.results
	}
	l.plan = negotiate.Fuse(l.plan[:0], l.responses, l.settings.fusionThreshold, o)
	l.next = 0
	l.traceBatch()
	return true
}

// read turns the records of a batch into Responses.
func (l *lane) read(records []transport.Record) error {
	l.responses, l.answered, l.sequences = l.responses[:0], l.answered[:0], l.sequences[:0]
	l.early.results, l.early.some = l.early.results[:0], false
	e := l.engine
	l.clock, l.timely = thisMoment(), true
	e.mu.Lock()
	defer e.mu.Unlock() // after a panic, too: the end of the engine needs the lock
	l.early.answered()
	for i := range records {
		rec := &records[i]
		l.sequence++
		var resp *negotiate.Response
		var err error
		var result []byte
		switch rec.Kind {
		case transport.RecordCard, transport.RecordResult:
			if resp, err = l.worker.Card(rec.Card); err == nil {
				l.traceCompleted(rec.Card, resp)
			}
			if err == nil && rec.Kind == transport.RecordResult {
				result = rec.Payload
				err = checkResult(rec, resp)
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
		l.responses, l.sequences = append(l.responses, resp), append(l.sequences, l.sequence)
		if l.early.board != nil {
			l.early.readResult(result)
		}
		e.figures.steps.reduced(l.id, resp, rec.Kind != transport.RecordResponse, l.clock)
		en := l.pending(resp.Name)
		l.answered = append(l.answered, en)
		if en != nil {
			if en.agreed {
				return fmt.Errorf("%q is answered twice", resp.Name)
			}
			en.agreed = true
			l.recordAgreed(en)
			l.countAgreed(en, rec, resp)
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

// heldBack is the time for which the next batch must still wait for more tensors.
func (l *lane) heldBack() time.Duration {
	e := l.engine
	if l.settings.cycleTime <= 0 || e.seat.now().Closing() {
		return 0
	}
	return time.Until(l.batchAt.Add(l.settings.cycleTime))
}

// complete ends an Entry. A nil Entry stands for a tensor that this rank has not submitted, because it has joined.
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
	l.countExecuted()
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
	if en.unheld {
		l.forgetRefused(en.request.Name)
	} else {
		delete(l.table, en.request.Name)
	}
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
	e.seat.ended(1)
	en.finish(err)
}

// closed fails the pending operations after the log was closed, and reports whether it could. A rank may learn that a
// set's log is closed before it learns that of the world's log; without KeepSets, only the world's log says which rank
// left first.
func (l *lane) closed() bool {
	e := l.engine
	if e.seat.now().Closing() {
		l.shut = true
		return true // Shutdown does it
	}
	if !l.decisive().left() {
		return false
	}
	l.shut = true
	if l == e.world && !e.keepsSets.Load() {
		// The other sets end, too. Their members may learn it from this rank. Operations on which they have
		// agreed are executed first; after that progress ends the engine.
		for _, other := range *e.lanes.Load() {
			if other.board.ClosedBy() < 0 {
				other.board.Close()
			}
		}
	}
	l.failAll(errLeft)
	return true
}

// failAll completes all pending operations with reason. Nothing of the lane touches their memory any more.
func (l *lane) failAll(reason *Error) {
	e := l.engine
	l.uncopy()
	l.current.op = nil
	l.plan, l.next = l.plan[:0], 0
	doing := e.occupation()
	e.mu.Lock()
	l.clock = thisMoment()
	left := make([]*Entry, 0, len(l.table))
	for name, en := range l.table {
		left = append(left, en)
		l.recordEnd(en, reason)
		delete(l.table, name)
		e.inUse.ended(en)
	}
	for name, calls := range l.refused {
		for _, en := range calls {
			left = append(left, en)
			l.recordEnd(en, reason)
		}
		delete(l.refused, name)
	}
	l.outbox, l.unready, l.joining = nil, nil, nil
	l.worker = negotiate.NewWorker(l.rank) // the kept state of tensors ends here
	l.behind.Store(0)
	l.following.Store(0)
	e.mu.Unlock()
	if len(left) == 0 {
		return
	}
	end := func() {
		reason := l.words(reason, doing) // to find them may take seconds
		e.seat.ended(len(left))
		for _, en := range left {
			en.finish(reason)
		}
	}
	if e.failure.Load() != nil || reason != errLeft || !e.keepsSets.Load() {
		end()
		return
	}
	guard.In(&e.telling, "the news of a departure", e.net.Abort, func() { // meanwhile the driver works for other sets
		end()
		e.ring() // the driver may wait for one of these operations
	})
}

// free frees the lane's own memory, after run and the network's part have been closed.
func (l *lane) free() {
	if !l.quiet {
		return // it may still be written to
	}
	l.run.Free()
	if l.device != nil {
		l.device.Free()
	}
	l.current.buffer.Free()
	l.current.spare.Free()
	l.current.owed.Free()
	l.freeTables()
}
