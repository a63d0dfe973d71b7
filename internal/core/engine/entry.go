package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/observe/flight"
)

// Op describes one collective operation. Data is contiguous and
// belongs to the engine from Enqueue until the operation is done.
type Op struct {
	Type      operation.Kind
	DType     tensor.DType
	ReduceOp  tensor.ReduceOp // Allreduce
	Wire      tensor.Wire     // Allreduce; it has an effect where Wire.For says so
	Name      string          // may be reused by the caller after Enqueue
	Unnamed   bool            // the engine gives the name, see noname.go
	Root      int             // Broadcast: world rank. RemoveProcessSet: the set. Pull, Push: the table
	Splits    []int32         // Alltoall: rows for each member; nil: the same for all. Pull, Push: see Keys
	Ranks     []int32         // AddProcessSet: ascending
	Set       int             // process set
	Shape     tensor.Shape    // may be reused by the caller after Enqueue
	Prescale  float64
	Postscale float64
	In        []byte
	// Keys, of a Pull or Push, are distinct. The first Splits[0] belong to member 0, and so on. Keys and Splits belong
	// to the engine until the operation is done. Root is the table's number, In are a Push's gradients, Out is for a
	// Pull's rows, and Shape is that of these.
	Keys []int64
	// Rate, of a Push, is the learning rate: the same on all ranks.
	Rate float32
	// Looks, of a Pull, says that it makes no rows, and counts for nothing: see table.Pull.
	Looks bool
	// Refused, if not empty, says why the caller cannot give the operation proper arguments. It fails on all ranks.
	Refused string
	// Out is the memory for the output (operation.Descriptor.Output). If the output is like the input, Out may be In.
	// Out is nil if the output's size depends on the other ranks, and may be nil for this rank's own rows. If only the
	// root has an output, the engine does not touch Out on the others.
	Out []byte
	// Owner, if not nil, says that In and Out are in memory of a device, which only Options.Devices can use. The engine
	// releases Owner, also if it refuses the op.
	Owner collective.Owner
	// AddsUp, of an Allgather, says that the program is going to add up what the members contribute, as it does with
	// values of sparse tensors. So a NaN matters as it does in a reduction.
	AddsUp bool
	// Copied says that In and Out are copies, in host memory, of memory of a device.
	Copied bool
	// InOf and OutOf, if not 0, say that In and Out are copies of the caller's memory at these addresses. The rules of
	// inUse hold for the caller's memory. The memory at OutOf is in use until the last Release, because the caller
	// copies the result there after the end.
	InOf, OutOf uintptr
	// Target, if the caller knows it, is the memory that Alloc is going to return.
	Target []byte
	// Alloc makes the output if Out is nil. The driver calls it; it must be short.
	Alloc func(shape tensor.Shape, bytes int) ([]byte, error)
	// Free, if set, takes an output made by Alloc that nobody has taken.
	Free func(out []byte)
	// Ready, if set, says whether In may be read. The driver polls it, with the engine's lock held: it may not block or
	// call the engine.
	Ready func() bool
	// Done, if set, is called once on a goroutine of its own.
	Done func(*Entry)
	// WillWait says that the caller waits at once, so that Enqueue need not wake a goroutine that drives.
	WillWait bool
	// HoldsCaller says that the calling thread does nothing else before the end, though it may not wait in the engine.
	HoldsCaller bool
	// Stream, if not 0, is one of those of the process set: see stream.go.
	Stream int64
	// Status, if set, receives the outcome's Code, after everything else that the operation writes to the caller's
	// memory. The engine does not touch the memory after that.
	Status *int32
	// Ended, if set, is called once by the driver after Status has been written and Done reports the end. It must be
	// short, and may not block or call the engine.
	Ended func(*Entry)
}

// Entry is an operation that has been submitted. Its methods are safe on any
// goroutine until Release.
type Entry struct {
	op      Op
	engine  *Engine
	lane    *lane
	request negotiate.Request
	shape   []int64 // backs request.Shape, reused
	card    uint32  // marked with gen; negotiate.NoCard if posted in full
	gen     uint32

	since    moment        // of the submission
	readyAt  moment        // when it became ready after its submission; else 0
	record   *flight.Entry // of this operation while its Number is number; guarded by engine.mu
	number   uint64
	agreed   bool    // its Response has been read; guarded by engine.mu
	group    *group  // nil for an operation of its own
	sendRows []int32 // Alltoall: what each member gets. Pull, Push: Op.Splits
	root     int32   // the result of a Join, AddProcessSet or RemoveProcessSet
	received []int32 // Alltoall: rows from each member
	outShape tensor.Shape
	err      *Error
	done     atomic.Bool
	waiting  atomic.Bool  // threads may sleep in engine.parking until it is done
	tiring   atomic.Bool  // a long wait for it has ended before it: see driving.Tires
	refusal  *Error       // the error it will end with: its memory is in use, or its arguments are wrong
	unheld   bool         // its caller has the refusal already: it is in lane.refused, not in the table
	refs     atomic.Int32 // the holder and the engine; the last one recycles
	late     atomic.Pointer[func(*Entry)]
	blocked  mainWait
	holds    bool // it holds the main thread, see Op.HoldsCaller

	reads, writes extent   // its memory in engine.inUse
	follows       []*Entry // operations that must end before it is announced; guarded by engine.mu

	// Tag is the holder's; 0 after Enqueue.
	Tag int64
}

var entries = sync.Pool{New: func() any { return new(Entry) }}

// Done reports that the operation has ended; Err and Output are valid then.
func (e *Entry) Done() bool { return e.done.Load() }

// Poll is Done for a program that waits by asking again and again. It tells the background goroutine that the program
// waits. If the program never sleeps in its loop, Poll also does a step of the work.
func (e *Entry) Poll() bool {
	if e.done.Load() {
		return true
	}
	now, spins := e.engine.asked()
	if !spins {
		return false
	}
	e.engine.step(now)
	return e.done.Load()
}

// Wait blocks until the operation is done or d has passed (negative: without
// limit), and reports which. See Engine.Wait.
func (e *Entry) Wait(d time.Duration) bool { return e.engine.Wait(e, d) }

// Err is nil for success.
func (e *Entry) Err() *Error { return e.err }

// Output is the result: its bytes and its shape.
func (e *Entry) Output() ([]byte, tensor.Shape) { return e.op.Out, e.outShape }

// ReceivedSplits is, after an Alltoall, the number of rows from each member.
func (e *Entry) ReceivedSplits() []int32 { return e.received }

// LastJoined is, after a Join, the world rank that joined last.
func (e *Entry) LastJoined() int { return int(e.root) }

// Owner is Op.Owner.
func (e *Entry) Owner() collective.Owner { return e.op.Owner }

// TakeOutput gives the output to the caller, who frees it. Nil if the engine
// does not own it, or if it has been taken already.
func (e *Entry) TakeOutput() []byte {
	if e.op.Free == nil {
		return nil
	}
	out := e.op.Out
	e.op.Out, e.op.Free = nil, nil
	return out
}

// Name is the tensor's name.
func (e *Entry) Name() string { return e.request.Name }

// Type is the kind of the operation.
func (e *Entry) Type() operation.Kind { return e.request.Type }

// Retain adds a holder, which must call Release, too.
func (e *Entry) Retain() { e.refs.Add(1) }

// Release ends the caller's interest. The Entry must not be used afterwards. An operation in progress continues.
func (e *Entry) Release() {
	if e.refs.Add(-1) == 0 {
		e.recycle()
	}
}

func (e *Entry) recycle() {
	if e.op.Free != nil && e.op.Out != nil {
		e.op.Free(e.op.Out)
	}
	if e.op.Owner != nil {
		e.op.Owner.Release()
	}
	if e.writes.end != 0 { // see Op.OutOf
		e.engine.mu.Lock()
		e.engine.inUse.release(e)
		e.engine.mu.Unlock()
	}
	shape := e.shape[:0]
	*e = Entry{shape: shape}
	entries.Put(e)
}

// finish publishes the outcome. The driver calls it once, with no lock held.
func (e *Entry) finish(err *Error) {
	e.err = err
	done := e.op.Done
	if status := e.op.Status; status != nil {
		code := OK
		if err != nil {
			code = err.Code
		}
		e.op.Status = nil
		atomic.StoreInt32(status, int32(code))
	}
	e.done.Store(true)
	e.callLate()
	if e.waiting.Load() {
		e.engine.wakeWaiters(e)
	}
	if e.op.Ended != nil {
		e.op.Ended(e)
	}
	if done != nil {
		e.engine.callbackStarted()
		guard.Go("a callback", e.panicked, func() {
			done(e)
			e.Release()
		})
		return
	}
	e.Release()
}

// OnDone lets f be called once, on a goroutine of its own, when the operation has ended: at once if it has ended
// already. OnDone may be called once, besides Op.Done. The caller holds the Entry, and f may use the Entry until f
// returns.
func (e *Entry) OnDone(f func(*Entry)) error {
	e.engine.expectCallback()
	e.Retain()
	if !e.late.CompareAndSwap(nil, &f) {
		e.engine.callbackStarted()
		e.Release()
		return errors.New("the operation has a callback already")
	}
	if e.done.Load() {
		e.callLate()
	}
	return nil
}

// panicked turns a callback's panic into an abort.
func (e *Entry) panicked(err error) { e.engine.net.Abort(err) }

// startedCallback stands for a callback of OnDone that has been started.
var startedCallback = func(*Entry) {}

// callLate starts the callback of OnDone. done is set. Both finish and a later OnDone call it, and one of them finds
// the callback.
func (e *Entry) callLate() {
	f := e.late.Load()
	if f == nil || f == &startedCallback || !e.late.CompareAndSwap(f, &startedCallback) {
		return
	}
	e.engine.callbackStarted()
	guard.Go("a callback", e.panicked, func() {
		(*f)(e)
		e.Release()
	})
}
