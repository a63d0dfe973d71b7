package carrier

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/base/guard"
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/carriers/cuda"
	"github.com/gorovod/gorovod/internal/carriers/nccl"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// Lane is one member's part in a lane whose tensors are on devices. It belongs to the driver. Only abort may be called
// on other goroutines.
type Lane struct {
	devices *Devices
	id      int
	members []int // world ranks
	rank    int   // this rank's index in members
	host    collective.Carrier

	turn   turn
	place  *place // nil before the first operation
	stream cuda.Stream
	done   cuda.Event // of the last operation

	founded bool
	found   founding
	comm    Comm                 // nil where tensors are staged
	float8  bool                 // comm reduces floats of 8 bits
	current atomic.Pointer[Comm] // comm, or the one being made; the goroutine that takes it out ends it
	over    chan struct{}        // closed when the last communicator has ended; nil: there was none
	scales  map[scaling]nccl.ReduceOp
	issuing bool // NCCL has a program of which not all is in the stream yet

	leaves  atomic.Bool // Settled has been called
	settles settling

	direct  direct
	copying copying
	zeros   buffer // the input of a member that has joined
	scratch buffer // for that member's output, and for other outputs that nobody wants
	short   bool   // the device lacks memory for zeros
	arena   arena
	moved   uint64
}

var _ engine.DeviceCarrier = (*Lane)(nil)

// scaling is a sum of scaled elements.
type scaling struct {
	dtype  tensor.DType
	factor float64
}

// open makes the lane's stream and event, unless they are there.
func (l *Lane) open() error {
	if l.place != nil {
		return nil
	}
	p, err := l.devices.at(-1)
	if err != nil {
		return err
	}
	if l.stream, err = p.context.NewStream(); err != nil {
		return err
	}
	if l.done, err = p.context.NewEvent(); err != nil {
		_ = p.context.FreeStream(l.stream) // the first error says more
		return err
	}
	l.place = p
	return nil
}

// Carries implements engine.DeviceCarrier.
func (l *Lane) Carries(kind operation.Kind, dtype tensor.DType, op tensor.ReduceOp, prescale, postscale float64) bool {
	if l.comm == nil || !byNCCL(kind, dtype, op, prescale, postscale, len(l.members), l.float8) {
		return false
	}
	reduces := kind == operation.Allreduce || kind == operation.Reduce || kind == operation.Reducescatter
	return !reduces || !l.devices.options.Deterministic
}

// Can says that the driver has to poll, and that nobody knows what NCCL sends.
func (l *Lane) Can() collective.Abilities {
	return collective.Abilities{Polled: true, Way: feed.ByNCCL}
}

// Sent is unknown, as Can says.
func (l *Lane) Sent() collective.Sent { return collective.Sent{} }

// Moved counts steps.
func (l *Lane) Moved() uint64 { return l.moved + l.host.Moved() }

// Tune changes nothing.
func (l *Lane) Tune(collective.Tuning) {}

// Limits on Close's wait for the end of the communicator and of the work in the stream. Work that is still left may
// wait for a stream of the program, which the engine cannot end.
const (
	drainTime    = time.Second            // when nothing has failed; twice if the communicator ends in peace
	aftermath    = time.Second            // after an abort, of all lanes together
	lastLook     = 100 * time.Millisecond // at the stream, and at what others use, once the time is over
	betweenLooks = 100 * time.Microsecond
)

// Settled implements engine.DeviceCarrier.
func (l *Lane) Settled() (bool, error) {
	settled := l.devices.watch.settled(l)
	return l.settles.over(l.devices, settled, fmt.Sprintf("of process set %d, which is removed", l.id))
}

// Close ends the communicator. Without a cause the lane is settled. The lane is quiet when the device has nothing more
// to do in its stream, although the communicator may still wait for the device.
func (l *Lane) Close(cause error) (quiet bool) {
	defer l.devices.forget(l)
	if cause == nil && !l.devices.watch.settled(l) {
		cause = l.devices.lose(fmt.Errorf("%s leaves process set %d while its device works for it",
			l.devices.options.Describe(l.devices.options.Rank), l.id))
	}
	if !l.devices.watch.remove(l) {
		l.done = 0 // a call that hangs has it
	}
	deadline := time.Now().Add(drainTime)
	switch c := l.current.Load(); {
	case cause != nil:
		deadline = l.devices.latest()
		l.devices.Abort(cause) // all of them: see there
	case c != nil && l.founded && !l.direct.running:
		deadline = deadline.Add(drainTime)
		l.end(func() { l.finish(c) })
	default:
		l.abort()
	}
	ended := l.ends(deadline)
	if last := time.Now().Add(lastLook); deadline.Before(last) {
		deadline = last
	}
	if (ended || !l.issuing) && l.drained(deadline) {
		return true
	}
	l.devices.options.Log.Warn(fmt.Sprintf("device %d still works for a process set that ends: the memory of that "+
		"set's tensors is not freed", l.place.device), "process set", l.id, "communicator has ended", ended)
	l.leave()
	return false
}

// end has f end the communicator on a goroutine of its own, since NCCL may wait for the device.
func (l *Lane) end(f func()) {
	guard.Go("the end of a communicator", func(err error) {
		l.devices.options.Log.Error("end a communicator of NCCL", "error", err)
	}, f)
}

// ends waits until the communicator has ended, and reports whether it has.
func (l *Lane) ends(deadline time.Time) bool {
	if l.over == nil {
		return true
	}
	select {
	case <-l.over:
		return true
	case <-time.After(time.Until(deadline)):
		return false
	}
}

// issue puts a program into the stream, as far as NCCL lets it, and reports whether all of it is there.
func (l *Lane) issue(p *nccl.Program) (bool, error) {
	l.issuing = true
	if issued, err := l.comm.Advance(p); err != nil || !issued {
		return false, err
	}
	l.issuing = false
	l.issued()
	return true, nil
}

// finish ends c in order if it can, else at once.
func (l *Lane) finish(c *Comm) {
	if l.finalized(*c) && l.current.CompareAndSwap(c, nil) {
		defer close(l.over)
		_ = (*c).Destroy() // nobody uses it any more
	}
	l.abort()
}

// leave gives up the stream and the event. They end with the work that is left.
func (l *Lane) leave() {
	c, stream, done := l.place.context, l.stream, l.done
	l.place.bin.throw(func() {
		_ = c.FreeStream(stream)
		if done != 0 {
			_ = c.FreeEvent(done)
		}
	})
	l.place = nil
}

// finalized waits until NCCL has finalized c, and reports whether that succeeded.
func (l *Lane) finalized(c Comm) bool {
	if c.Finalize() != nil {
		return false
	}
	for deadline := time.Now().Add(drainTime); time.Now().Before(deadline); time.Sleep(betweenLooks) {
		if ready, err := c.Ready(); ready || err != nil {
			return err == nil
		}
	}
	return false
}

// drained waits for what is in the stream, and reports whether it has ended.
func (l *Lane) drained(deadline time.Time) bool {
	if l.place == nil {
		return true
	}
	if l.done == 0 {
		return false // nobody knows
	}
	c := l.place.context
	if c.Record(l.done, l.stream) != nil {
		return true // the device is lost
	}
	for ; time.Now().Before(deadline); time.Sleep(betweenLooks) {
		if reached, err := c.Reached(l.done); reached || err != nil {
			return true
		}
	}
	return false
}

// abort begins to end the communicator at once. It may be called on any goroutine.
func (l *Lane) abort() {
	if c := l.current.Swap(nil); c != nil {
		l.end(func() { l.kill(*c) })
	}
}

func (l *Lane) kill(c Comm) {
	defer close(l.over)
	if err := c.Abort(); err != nil {
		l.devices.options.Log.Debug("abort a communicator of NCCL", "error", err)
	}
}

// Free returns memory, stream and event.
func (l *Lane) Free() {
	if l.place == nil {
		return
	}
	l.zeros.free(l.place)
	l.scratch.free(l.place)
	l.arena.free(l.place)
	l.leave()
}

// failed makes an error that names this rank from an error of CUDA or NCCL.
func (l *Lane) failed(what string, err error) error {
	return fmt.Errorf("%s on %s: %w", what, l.devices.options.Describe(l.devices.options.Rank), err)
}

// failing is an operation that cannot begin.
type failing struct{ err error }

func (f failing) Advance() (bool, error) { return false, f.err }
