// Package engine executes named collective operations that any rank submits in any order. It owns the pending table,
// the driver, the fusion buffer and the completion of operations. Package negotiate decides the order, package
// collective has the algorithms, and a transport moves the data. The engine knows no wire formats and no algorithms.
//
// An Engine is a value: a test may run many in one process. Package process holds the one that a process-wide interface
// needs.
package engine

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/failpoint"
	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/driving"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/flight"
	"github.com/gorovod/gorovod/internal/observe/timeline"
)

// Options configure an Engine. All ranks of a world must use the same values of
// FusionThreshold, CacheCapacity, EarlyBytes and Wire.
type Options struct {
	Rank, Size      int
	FusionThreshold int64 // bytes; 0 disables fusion
	CacheCapacity   int   // cards; 0 disables the response cache
	// EarlyBytes is how many bytes of a rank's small tensors may travel to other hosts at a time before all ranks have
	// agreed on them, in a lane on few hosts; 0: none do. Where Tune is set, it is where the search begins.
	EarlyBytes int
	// Wire is the compression between hosts of reductions that ask for none themselves.
	Wire tensor.Wire
	// NaNCheck says what the engine does if this rank contributes a NaN or an infinity to a reduction.
	NaNCheck operation.NaNCheck
	// GroupsApart keeps the tensors of a group from fusing with others.
	GroupsApart bool
	// JoinAllOps lets a rank that has joined take part in every operation, with an
	// empty part, not only in reductions.
	JoinAllOps bool
	// CycleTime is the least time between two batches, so that more tensors can fuse.
	CycleTime time.Duration
	// Timeline records what this rank executes; nil for none.
	Timeline *timeline.Timeline
	// Tune, if set, lets rank 0 search for better settings while the job runs.
	Tune *TuneOptions
	// Stalled, if set, is called about twice a second while the driver waits, with the age of the oldest pending
	// operation. It must not block.
	Stalled func(oldest time.Duration)
	// MainThread, if set, reports whether the calling goroutine runs on the program's main thread, and stays there.
	// While that thread waits for an operation, the program waits for it: see Waiting.Blocked.
	MainThread func() bool
	// OthersSubmit, if set, reports whether a thread other than the main one has submitted an operation.
	OthersSubmit func() bool
	// Collective has the options of the algorithms.
	Collective collective.Options
	// MeasureLinks makes the ranks measure the connections between their hosts first, and tune the algorithms for them.
	// It is the same on all ranks.
	MeasureLinks bool
	// StartTimeout is the job's. After two or three times as long, New waits no longer for others to measure; 0: it
	// waits without a limit.
	StartTimeout time.Duration
	// Carrier, if set, makes the carrier of a lane of several members. All members call it for the same lane. It may
	// block until all have called it, or fail.
	Carrier func(o Opening) (collective.Carrier, error)
	// Devices, if set, carries operations on memory of devices.
	Devices Devices
	// AfterAbort, if set, is a sentence for users that follows the cause of an abort.
	AfterAbort string
	Spin       bool // poll for a while before sleeping: only where ranks ≤ usable cores
	SpareCores bool // there are two usable cores a rank: the program and the background goroutine do not share one
	OneHost    bool // all ranks are on this host
	// Describe names a world rank for error messages, such as "rank 2 on host a".
	Describe func(rank int) string
	// Failed, if set, is called once, by the goroutine that finds out that the network was aborted, with the cause but
	// without this rank's view. It must not block.
	Failed func(cause error)
	// Agree, if set, returns the words that all ranks use for a failure. It gets the cause and this rank's view. It may
	// block for a short time.
	Agree func(cause, view string) string
	// Left, if set, returns the words that all ranks use after a rank has left while others had operations to do, such
	// as LeftText with this rank's view. It is called once, and may block for a short time.
	Left func(rank int, view string) string
	// Victim, if set, is called once, before the first operation of this rank fails because the network was aborted. It
	// is not called if nothing fails. It may block for a short time.
	Victim func()
	Log    *slog.Logger
	// Records is the number of operations that are remembered for a post-mortem, the latest ones.
	Records int
}

// Opening is a lane that gets its carrier.
type Opening struct {
	ID          int
	Incarnation uint32 // of ID, which several lanes may have one after the other
	Members     []int  // world ranks, ascending
	// Lane is the network's part of the lane. Its data path (Shared, Comm) is the carrier's, which may leave it unused,
	// or pass operations on to a collective.Lane over it. Its board is the engine's.
	Lane *transport.Lane
	// Bell is this rank's. A carrier that is not Polled rings it when an operation under way can go on. It calls only
	// Ring.
	Bell transport.Bell
}

// Engine runs the operations of one rank in one generation of the world.
type Engine struct {
	net    transport.Network
	poller transport.Poller // net, if it needs turns
	bell   transport.Bell
	bulk   transport.BulkBell // bell, if it can tell waits for much
	opts   Options
	job    driving.Job
	world  *lane
	links  links // set by New

	flight   *flight.Recorder        // guarded by mu
	mu       sync.Mutex              // guards sets, inUse, and each lane's pending table and worker
	inUse    inUse                   // what pending operations read and write
	sets     map[int]*processSet     // by id
	lanes    atomic.Pointer[[]*lane] // of the sets that this rank is in; renewed, never changed
	setCalls sync.Mutex              // one AddSet or RemoveSet at a time
	added    uint32                  // how many sets have been added ever; guarded by setCalls

	seat    seat               // the drive lock, and who wants it
	parking parking            // who waits while another thread drives
	cores   driving.Contention // the driver's
	// operations in progress with a callback: the program is told of their end, and does not ask before
	callbacks    atomic.Int32
	askedAt      atomic.Int64             // when asked last found an operation in progress, in ns since started
	spunAt       atomic.Int64             // the same, of the last call in a loop that never sleeps
	hurry        chan struct{}            // ends the background goroutine's nap, see endNap
	napping      *time.Timer              // the background goroutine's
	kick         chan struct{}            // wakes the background goroutine
	quit         chan struct{}            // closed to end the background goroutine
	stopped      chan struct{}            // closed when it has ended
	stallChecked moment                   // the driver's
	verified     moment                   // the driver's: when checkShared last called Verify
	active       moment                   // when something was last submitted, as clock has it; guarded by mu
	failure      atomic.Pointer[Error]    // set once: every later operation gets it
	abort        atomic.Pointer[Error]    // set once, before failure, if an abort ends the engine
	victim       sync.Once                // Options.Victim
	keepsSets    atomic.Bool              // see KeepSets
	telling      sync.WaitGroup           // goroutines that tell of a departure
	look         atomic.Pointer[lastLook] // a question of LastLook; nil for none

	polls    bool // whether operations may be on a carrier that has to be polled; the driver's
	notes    notes
	clock    clock
	tuner    *tuner // on rank 0, while Options.Tune asks for it
	counters Counters
	figures  figures         // guarded by mu
	nansOf   map[string]bool // the tensors that NaNCheck has logged; the driver's
}

// Counters count the engine's work since it was made.
type Counters struct {
	WakeUps  atomic.Int64 // returns of the driver from sleep
	Ops      atomic.Int64 // operations executed
	Batches  atomic.Int64 // batches read from the log
	Requests atomic.Int64 // requests posted in full
	Marks    atomic.Int64 // cards marked
	NaNs     atomic.Int64 // tensors that this rank contributed with a NaN or an infinity; only with Options.NaNCheck
	Ahead    atomic.Int64 // operations whose result came with the log, see early.go
	Samples  atomic.Int64 // samples that the program says it has worked through
}

// New makes the engine of one rank and opens the lane of the whole world. The
// engine owns net from now on. It blocks until the lane is ready, and, with
// MeasureLinks, until all ranks have measured.
func New(net transport.Network, o Options) (*Engine, error) {
	if o.Describe == nil {
		o.Describe = func(rank int) string { return fmt.Sprintf("rank %d", rank) }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{net: net, bell: net.Bell(), opts: o, job: driving.Job{Spin: o.Spin,
		SpareCores: o.SpareCores, OneHost: o.OneHost}, flight: flight.NewRecorder(o.Records), kick: make(chan struct{},
		1), hurry: make(chan struct{}, 1), napping: time.NewTimer(0), quit: make(chan struct{}),
		stopped: make(chan struct{}), polls: o.Carrier != nil}
	e.poller, _ = net.(transport.Poller)
	e.bulk, _ = e.bell.(transport.BulkBell)
	e.seat.freed = make(chan struct{}, 1)
	members := make([]int, o.Size)
	for i := range members {
		members[i] = i
	}
	l, err := newLane(e, 0, 0, members)
	if err != nil {
		net.Close()
		return nil, err
	}
	e.world = l
	e.measureLinks(l)
	if n, ok := net.(transport.Attended); ok {
		n.Attend(e.Wake)
	}
	e.sets = map[int]*processSet{0: {id: 0, members: members, lane: l}}
	e.publishLanes()
	if o.Tune != nil && o.Rank == 0 {
		if err := e.startTuner(l, *o.Tune); err != nil {
			net.Close()
			return nil, err
		}
	}
	if o.Timeline != nil && o.Rank == 0 {
		o.Timeline.Watch(e.Wake) // for arrivals, while the program computes
	}
	guard.Go("the engine's own goroutine", e.net.Abort, e.background)
	return e, nil
}

// Counters are live; read them with Load.
func (e *Engine) Counters() *Counters { return &e.counters }

// Pending is the number of operations submitted and not yet done.
func (e *Engine) Pending() int { return e.seat.now().Pending() }

// Network names what carries the data.
func (e *Engine) Network() string { return e.net.Name() }

// Abort ends every operation on every rank with cause.
func (e *Engine) Abort(cause error) { e.net.Abort(cause) }

// Wake makes the engine look at its boards although it has nothing pending. A transport calls it when messages for a
// coordinator have come in.
func (e *Engine) Wake() {
	e.seat.change(driving.Seat.Wake)
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// ClosedBy is the rank that closed the world's log first, -1 while it is open.
// over is true once this engine has ended, for that or another reason.
func (e *Engine) ClosedBy() (rank int, over bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failure.Load() != nil {
		return -1, true // the board is gone
	}
	return e.world.board.ClosedBy(), false
}

// Enqueue submits an operation and returns at once. The caller releases the Entry.
func (e *Engine) Enqueue(op *Op) (*Entry, *Error) {
	if f := e.failure.Load(); f != nil {
		return nil, Disown(e.world.words(f, submission(op)), *op)
	}
	if err := e.net.Err(); err != nil {
		return nil, Disown(e.world.words(e.noticed(err), submission(op)), *op)
	}
	switch d := op.Type.Describe(); {
	case d.Role == operation.Meeting:
		op.Name, op.Unnamed, op.DType = d.Noname(), false, tensor.Uint8
	case op.Unnamed:
		op.Name = d.Noname() // for errors
	}
	l, err := e.lane(op)
	if err != nil {
		return nil, Disown(err, *op)
	}
	if err := l.check(op); err != nil {
		l.refuseCall(op, err)
		return nil, Disown(err, *op)
	}
	en := newEntry(l, op)
	if err := l.submit(en); err != nil {
		en.recycle()
		return nil, l.words(err, submission(op))
	}
	if !op.WillWait {
		e.ensureDriver()
	}
	return en, nil
}

// EnqueueGroup submits operations of which none starts before all of them are ready on every member. All have the same
// type and set. name is the group's name; if it is empty, the engine names the group and its operations. Either all are
// submitted or none is. The Entries are in the order of ops.
func (e *Engine) EnqueueGroup(name string, ops []Op) ([]*Entry, *Error) {
	if len(ops) == 0 {
		return nil, nil
	}
	if f := e.failure.Load(); f != nil {
		return nil, Disown(e.world.words(f, submission(&ops[0])), ops...)
	}
	if len(name) > negotiate.MaxName {
		return nil, Disown(errorf(InvalidArgument, "grouped %s: the group's name has %d bytes; at most %d are "+
			"possible.", ops[0].Type.Describe().Name, len(name), negotiate.MaxName), ops...)
	}
	l, err := e.lane(&ops[0])
	if err != nil {
		return nil, Disown(err, ops...)
	}
	for i := range ops {
		if ops[i].Set != ops[0].Set || ops[i].Type != ops[0].Type {
			return nil, Disown(errorf(InvalidArgument, "grouped %s: operation %d is of another type or process set "+
				"than the first.", ops[0].Type.Describe().Name, i), ops...)
		}
		if name == "" {
			ops[i].Name = ops[i].Type.Describe().NonameGrouped()
		}
		if err := l.check(&ops[i]); err != nil {
			l.refuseGroup(name, ops, err)
			return nil, Disown(err, ops...)
		}
	}
	g := &group{name: strings.Clone(name), entries: make([]*Entry, len(ops))}
	for i := range ops {
		en := newEntry(l, &ops[i])
		en.request.Group, en.request.GroupSize = g.name, int32(len(ops))
		en.group = g
		g.entries[i] = en
	}
	if err := l.submitGroup(g); err != nil {
		for _, en := range g.entries {
			en.recycle()
		}
		return nil, l.words(err, submission(&ops[0]))
	}
	if !ops[0].WillWait {
		e.ensureDriver()
	}
	return g.entries, nil
}

// newEntry makes the Entry of an operation that has been checked.
func newEntry(l *lane, op *Op) *Entry {
	en := entries.Get().(*Entry)
	en.engine, en.lane, en.op = l.engine, l, *op
	en.refs.Store(2)
	en.shape = append(en.shape[:0], op.Shape...)
	en.card = negotiate.NoCard
	en.holds = op.HoldsCaller && l.engine.opts.MainThread != nil && l.engine.opts.MainThread()
	en.request = negotiate.Request{Type: op.Type, DType: op.DType, Name: op.Name, Root: int32(op.Root),
		Device: negotiate.CPUDevice, Shape: en.shape, Prescale: op.Prescale, Ranks: op.Ranks}
	d := op.Type.Describe()
	if op.Owner != nil {
		en.request.Device = negotiate.GPUDevice
	} else if op.Copied {
		en.request.Device = negotiate.StagedDevice
	}
	en.request.ReduceOp, en.request.Postscale = d.Requested(op.ReduceOp, op.Postscale, len(l.members))
	if !l.hasOutput(d, op) {
		en.op.Out = nil // the caller's memory stays as it is
	}
	switch d.Output {
	case operation.Sent:
		en.sendRows = l.splits(op)
	case operation.OfKeys:
		en.sendRows = op.Splits
	}
	if d.Has(operation.Wire) {
		en.request.Wire = l.engine.wire(op)
	}
	en.op.Shape, en.op.Name, en.op.Splits = nil, "", nil
	return en
}

// wire is the compression of a reduction between hosts.
func (e *Engine) wire(op *Op) tensor.Wire {
	w := op.Wire
	if w == tensor.WireAsIs {
		w = e.opts.Wire
	}
	return w.For(op.DType, op.ReduceOp)
}

// lane returns the lane of an operation's process set.
func (e *Engine) lane(op *Op) (*lane, *Error) {
	if op.Set == 0 {
		return e.world, nil
	}
	e.mu.Lock()
	s := e.sets[op.Set]
	e.mu.Unlock()
	switch {
	case s == nil:
		return nil, errorf(InvalidArgument, "%s: Process set provided does not exist, or has not been "+
			"registered (id %d).", op.Type.Describe().Name, op.Set)
	case s.lane == nil && op.Type.Describe().Has(operation.Root) && !slices.Contains(s.members, op.Root):
		return nil, invalidRoot(op, s.members)
	case s.lane == nil:
		return nil, errorf(InvalidArgument, "%s: Rank %d is not a member of the provided process set.",
			op.Type.Describe().Name, e.opts.Rank)
	}
	return s.lane, nil
}

// Wait blocks until the Entry is done or limit has passed (negative: without limit), and reports whether the Entry is
// done. Meanwhile the calling goroutine drives the engine, if nobody else does.
func (e *Engine) Wait(en *Entry, limit time.Duration) bool {
	if en.Done() {
		return true
	}
	if limit < 0 {
		for !e.Wait(en, waitSlice) {
		}
		return true
	}
	t := timeout{most: limit}
	for {
		if e.seat.take(driving.Seat.Wait) || e.takeOver() {
			e.drive(en, &t)
			e.leaveSeat()
		} else {
			if d := min(driving.LongestPark, t.left(thisMoment())); d > 0 {
				e.park(en, d)
			}
		}
		if en.Done() {
			return true
		}
		if now := thisMoment(); t.left(now) <= 0 {
			if driving.Tires(now.since(t.began)) {
				en.tiring.Store(true)
			}
			e.ensureDriver()
			e.noteBlocked(en, t.began, now)
			return false
		}
	}
}

// Shutdown closes every lane's log, executes the operations that were published before, fails the rest, and releases
// the network. On other ranks, operations that were not published fail, too. It waits until the driver leaves the seat,
// and from then on at most limit.
func (e *Engine) Shutdown(limit time.Duration) {
	if !e.seat.take(driving.Seat.Close) {
		<-e.stopped
		return
	}
	e.noteSeat("closed", "ring")
	e.ring()
	e.seat.takeLast()
	if e.failure.Load() == nil && e.net.Err() == nil {
		for _, l := range *e.lanes.Load() {
			l.board.Close()
		}
		failpoint.Here("shutdown")
		e.drive(nil, &timeout{most: limit})
		e.Settle()
	}
	e.fail(errLeft)
	e.telling.Wait()
	e.seat.leave()
	close(e.quit)
	<-e.stopped
	e.saveNotes()
	if e.tuner != nil {
		<-e.tuner.ended
	}
}

// ring wakes a sleeping driver, unless the network is gone.
func (e *Engine) ring() {
	e.mu.Lock()
	if e.failure.Load() == nil {
		e.bell.Ring()
	}
	e.mu.Unlock()
}

func (e *Engine) drained() bool {
	for _, l := range *e.lanes.Load() {
		if !l.drained() {
			return false
		}
	}
	return true
}

// fail ends the engine: the data path first, then every operation with the same
// reason. The caller has the seat.
func (e *Engine) fail(reason *Error) {
	e.mu.Lock()
	first := e.failure.CompareAndSwap(nil, reason)
	e.mu.Unlock()
	if !first {
		return
	}
	if look := e.look.Load(); look != nil {
		e.looked(look)
	}
	cause := e.net.Err()
	e.noteSeat("ended", "close the network")
	for _, l := range *e.lanes.Load() {
		l.closeCarriers(cause)
	}
	e.guarded("close the network", e.net.Close)
	for _, l := range *e.lanes.Load() {
		e.guarded("fail the operations", func() error { l.failAll(reason); return nil })
		e.guarded("free the memory", func() error { l.free(); return nil })
	}
	if e.opts.Devices != nil {
		e.guarded("close the devices", func() error { e.opts.Devices.Close(); return nil })
	}
}

// guarded takes a step of the engine's end. Neither its error nor its panic keeps the engine from the next step: a
// caller that waits must get its error.
func (e *Engine) guarded(what string, step func() error) {
	defer func() {
		if p := recover(); p != nil {
			e.opts.Log.Error(what, "error", e.catch(p))
		}
	}()
	if err := step(); err != nil {
		e.opts.Log.Warn(what, "error", err)
	}
}
