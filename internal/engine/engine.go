// Package engine executes named collective operations that any rank submits in
// any order. It owns the pending table, the driver, the fusion buffer and the
// completion of operations; what is executed next is negotiate's decision, how
// it is done collective's, and what carries it the transport's. It knows no wire
// formats and no algorithms.
//
// An Engine is a value: a test may run many in one process. Package process
// holds the one that a process-wide interface needs.
package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/reduce"
	"github.com/gorovod/gorovod/internal/tensor"
	"github.com/gorovod/gorovod/internal/transport"
)

// Options configure an Engine. All ranks of a world must use the same values of
// FusionThreshold and CacheCapacity.
type Options struct {
	Rank, Size      int
	FusionThreshold int64 // bytes; 0 disables fusion
	CacheCapacity   int   // slots; 0 disables the response cache
	Spin            bool  // poll for a while before sleeping: only where ranks ≤ usable cores
	// Describe names a world rank for error messages, such as "rank 2 on host a".
	Describe func(rank int) string
	// Cause, if set, is asked once for a better explanation of a shutdown by
	// another rank; it may block for a short time.
	Cause func(rank int) string
	Log   *slog.Logger
}

// Engine runs the operations of one rank in one generation of the world.
type Engine struct {
	net   transport.Network
	bell  transport.Bell
	opts  Options
	world *lane

	mu    sync.Mutex // guards lanes, and each lane's pending table and worker
	lanes []*lane    // by process set id

	role    sync.Mutex    // the drive lock
	wanted  atomic.Int32  // those who need the role now (Shutdown): a driver yields to them
	pending atomic.Int64  // operations not yet done
	kick    chan struct{} // wakes the background goroutine
	quit    chan struct{} // closed to end the background goroutine
	stopped chan struct{} // closed when it has ended
	closing atomic.Bool
	failure atomic.Pointer[Error] // set once: every later operation gets it

	counters Counters
}

// Counters tell what the engine has done since it was made.
type Counters struct {
	WakeUps  atomic.Int64 // returns of the driver from sleep
	Ops      atomic.Int64 // operations executed
	Batches  atomic.Int64 // batches read from the log
	Requests atomic.Int64 // requests posted in full
	Marks    atomic.Int64 // slots marked
}

// New makes the engine of one rank and opens the lane of the whole world. The
// engine owns net from now on. It blocks until the lane is ready.
func New(net transport.Network, o Options) (*Engine, error) {
	if o.Describe == nil {
		o.Describe = func(rank int) string { return fmt.Sprintf("rank %d", rank) }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{net: net, bell: net.Bell(), opts: o, kick: make(chan struct{}, 1), quit: make(chan struct{}), stopped: make(chan struct{})}
	members := make([]int, o.Size)
	for i := range members {
		members[i] = i
	}
	l, err := newLane(e, 0, members)
	if err != nil {
		net.Close()
		return nil, err
	}
	e.world = l
	e.lanes = []*lane{l}
	go e.background()
	return e, nil
}

// Counters are live; read them with Load.
func (e *Engine) Counters() *Counters { return &e.counters }

// Pending is the number of operations submitted and not yet done.
func (e *Engine) Pending() int { return int(e.pending.Load()) }

// Network names what carries the data.
func (e *Engine) Network() string { return e.net.Name() }

// Abort ends every operation on every rank with cause.
func (e *Engine) Abort(cause error) { e.net.Abort(cause) }

// Wake makes the engine look at its boards although it has nothing pending: a
// transport calls it when messages for a coordinator have come in.
func (e *Engine) Wake() {
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

// Enqueue submits an operation and returns at once. The Entry is released by the caller.
func (e *Engine) Enqueue(op *Op) (*Entry, *Error) {
	if f := e.failure.Load(); f != nil {
		return nil, f
	}
	if err := e.net.Err(); err != nil {
		return nil, e.networkError(err)
	}
	if op.Set != 0 {
		return nil, errorf(InvalidArgument, "%s: Process set provided does not exist, or has not been registered (id %d).", opName(op.Type), op.Set)
	}
	l := e.world
	if err := l.check(op); err != nil {
		return nil, err
	}
	en := entries.Get().(*Entry)
	en.engine, en.lane, en.op = e, l, *op
	en.refs.Store(2)
	en.shape = append(en.shape[:0], op.Shape...)
	en.slot = negotiate.NoSlot
	en.request = negotiate.Request{Type: op.Type, DType: op.DType, ReduceOp: op.ReduceOp, Name: op.Name, Root: int32(op.Root),
		Device: negotiate.CPUDevice, Shape: en.shape, Prescale: op.Prescale, Postscale: op.Postscale}
	en.op.Shape, en.op.Name = nil, ""
	if err := l.submit(en); err != nil {
		en.recycle()
		return nil, err
	}
	if !op.WillWait {
		e.ensureDriver()
	}
	return en, nil
}

// Wait blocks until the Entry is done or timeout has passed (negative: without
// limit), and reports which. The calling goroutine drives the engine meanwhile
// if nobody else does.
func (e *Engine) Wait(en *Entry, timeout time.Duration) bool {
	if en.Done() {
		return true
	}
	var deadline time.Time
	if timeout >= 0 {
		deadline = time.Now().Add(timeout)
	}
	for {
		if e.wanted.Load() == 0 && e.role.TryLock() {
			e.drive(en, deadline)
			e.leaveRole()
		} else {
			d := time.Second
			if timeout >= 0 {
				d = min(d, time.Until(deadline))
			}
			if d > 0 {
				en.park(d)
			}
		}
		if en.Done() {
			return true
		}
		if timeout >= 0 && !time.Now().Before(deadline) {
			e.ensureDriver()
			return false
		}
	}
}

// Shutdown closes every lane's log, executes what was published before, fails
// the rest, and releases the network. Operations on other ranks that were not
// published fail there too. It returns within the given time.
func (e *Engine) Shutdown(limit time.Duration) {
	if e.closing.Swap(true) {
		<-e.stopped
		return
	}
	e.wanted.Add(1)
	e.ring()
	e.role.Lock()
	e.wanted.Add(-1)
	if e.failure.Load() == nil && e.net.Err() == nil {
		for _, l := range e.lanes {
			l.board.Close()
		}
		e.drive(nil, time.Now().Add(limit))
	}
	e.fail(&Error{UnknownError, shutDownText})
	e.role.Unlock()
	close(e.quit)
	<-e.stopped
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
	for _, l := range e.lanes {
		if !l.drained() {
			return false
		}
	}
	return true
}

// networkError is the Error for an aborted network.
func (e *Engine) networkError(err error) *Error {
	var ee *Error
	if errors.As(err, &ee) {
		return ee
	}
	return &Error{UnknownError, err.Error()}
}

// fail ends the engine: the data path first, then every operation with the same
// reason. The caller holds the role.
func (e *Engine) fail(reason *Error) {
	e.mu.Lock()
	first := e.failure.CompareAndSwap(nil, reason)
	e.mu.Unlock()
	if !first {
		return
	}
	if err := e.net.Close(); err != nil {
		e.opts.Log.Warn("close the network", "error", err)
	}
	for _, l := range e.lanes {
		l.failAll(reason)
	}
}

// check validates what can be seen on this rank alone.
func (l *lane) check(op *Op) *Error {
	if len(op.Name) > negotiate.MaxName {
		return errorf(InvalidArgument, "%s: the tensor name has %d bytes; at most %d are possible.", opName(op.Type), len(op.Name), negotiate.MaxName)
	}
	if op.Name == "" {
		return errorf(InvalidArgument, "%s: a tensor name is needed.", opName(op.Type))
	}
	if !op.DType.Valid() {
		return errorf(InvalidArgument, "%s of tensor %q: unknown data type %d.", opName(op.Type), op.Name, op.DType)
	}
	if len(op.Shape) > negotiate.MaxDims {
		return errorf(InvalidArgument, "%s of tensor %q: %d dimensions; at most %d are possible.", opName(op.Type), op.Name, len(op.Shape), negotiate.MaxDims)
	}
	n, err := op.Shape.NumElements()
	if err != nil {
		return errorf(InvalidArgument, "%s of tensor %q: %v.", opName(op.Type), op.Name, err)
	}
	bytes := n * int64(op.DType.Size())
	if op.Type != negotiate.Barrier && int64(len(op.In)) != bytes {
		return errorf(InvalidArgument, "%s of tensor %q: %d bytes of input for shape %v of %v, which has %d.", opName(op.Type), op.Name, len(op.In), op.Shape, op.DType, bytes)
	}
	switch op.Type {
	case negotiate.Allreduce:
		if len(op.Out) != len(op.In) {
			return errorf(InvalidArgument, "Allreduce of tensor %q: %d bytes of output for %d of input.", op.Name, len(op.Out), len(op.In))
		}
		if !op.ReduceOp.Valid() {
			return errorf(InvalidArgument, "Allreduce of tensor %q: unknown reduce operation %d.", op.Name, op.ReduceOp)
		}
		reduceOp, scale := op.ReduceOp, op.Postscale
		if reduceOp == tensor.Average {
			reduceOp = tensor.Sum
			scale /= float64(len(l.members))
		}
		if err := reduce.Check(op.DType, reduceOp); err != nil {
			return errorf(InvalidArgument, "Allreduce of tensor %q: %v.", op.Name, err)
		}
		for _, f := range [2]float64{op.Prescale, scale} {
			if err := reduce.CheckScale(op.DType, f); err != nil {
				return errorf(InvalidArgument, "Allreduce of tensor %q (%v): %v.", op.Name, op.ReduceOp, err)
			}
		}
	case negotiate.Broadcast:
		if len(op.Out) != len(op.In) {
			return errorf(InvalidArgument, "Broadcast of tensor %q: %d bytes of output for %d of input.", op.Name, len(op.Out), len(op.In))
		}
		if l.member(op.Root) < 0 {
			return errorf(InvalidArgument, "Broadcast of tensor %q: broadcast received invalid root rank %d for provided process set (size %d).", op.Name, op.Root, len(l.members))
		}
	case negotiate.Allgather, negotiate.Barrier:
	default:
		return errorf(InvalidArgument, "%s is not supported by this version.", opName(op.Type))
	}
	return nil
}

func opName(t negotiate.RequestType) string {
	switch t {
	case negotiate.Allreduce:
		return "Allreduce"
	case negotiate.Allgather:
		return "Allgather"
	case negotiate.Broadcast:
		return "Broadcast"
	case negotiate.Join:
		return "Join"
	case negotiate.Adasum:
		return "Adasum"
	case negotiate.Alltoall:
		return "Alltoall"
	case negotiate.Barrier:
		return "Barrier"
	case negotiate.Reducescatter:
		return "Reducescatter"
	}
	return fmt.Sprintf("operation %d", t)
}
