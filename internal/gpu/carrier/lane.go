package carrier

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gorovod/gorovod/internal/collective"
	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/gpu/cuda"
	"github.com/gorovod/gorovod/internal/gpu/nccl"
	"github.com/gorovod/gorovod/internal/operation"
	"github.com/gorovod/gorovod/internal/tensor"
)

// Lane is one member's part in a lane whose tensors are on devices. It belongs to the lane's driver; only abort may be
// called by others.
type Lane struct {
	devices *Devices
	id      int
	members []int // world ranks
	rank    int   // this rank's index in members
	host    collective.Carrier

	place  *place // nil before the first operation
	stream cuda.Stream
	done   cuda.Event // of the last operation

	founded bool
	found   founding
	comm    Comm                 // nil where tensors are staged
	float8  bool                 // it reduces floats of 8 bits
	current atomic.Pointer[Comm] // comm, or the one that is being made: for abort
	scales  map[scaling]nccl.ReduceOp

	direct  direct
	copying copying
	zeros   buffer // the input of a member that has joined
	scratch buffer // where its output goes, or another one that nobody wants
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

// open prepares the device's stream.
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

// Carries is engine.DeviceCarrier's.
func (l *Lane) Carries(kind operation.Kind, dtype tensor.DType, op tensor.ReduceOp, prescale, postscale float64) bool {
	if l.comm == nil || !byNCCL(kind, dtype, op, prescale, postscale, l.float8) {
		return false
	}
	reduces := kind == operation.Allreduce || kind == operation.Reduce || kind == operation.Reducescatter
	return !reduces || !l.devices.options.Deterministic
}

// Can says that the driver has to poll.
func (l *Lane) Can() collective.Abilities { return collective.Abilities{Polled: true} }

// Moved counts steps.
func (l *Lane) Moved() uint64 { return l.moved + l.host.Moved() }

// Tune changes nothing.
func (l *Lane) Tune(collective.Tuning) {}

// How long Close waits for what is in the stream, when nothing has failed, and after an abort: what is left then may
// wait for a stream of the program, which nobody here can end.
const (
	drainTime    = time.Second
	aftermath    = 100 * time.Millisecond
	betweenLooks = 100 * time.Microsecond
)

// Close ends the communicator.
func (l *Lane) Close(cause error) (quiet bool) {
	defer l.devices.forget(l)
	if c := l.comm; c != nil && cause == nil && l.founded && !l.direct.running {
		if l.finalized(c) {
			l.current.Store(nil)
			_ = c.Destroy() // nobody uses it any more
		}
	}
	l.abort()
	limit := drainTime
	if cause != nil {
		limit = aftermath
	}
	if l.drained(limit) {
		return true
	}
	l.leave()
	return false
}

// leave gives up the stream and the event. They end with the work that is left. Memory stays: to free it would be to
// wait.
func (l *Lane) leave() {
	_ = l.place.context.FreeStream(l.stream)
	_ = l.place.context.FreeEvent(l.done)
	l.place = nil
}

// finalized ends c in peace, and reports whether that could be done.
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
func (l *Lane) drained(limit time.Duration) bool {
	if l.place == nil {
		return true
	}
	c := l.place.context
	if c.Record(l.done, l.stream) != nil {
		return true // the device is lost
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(betweenLooks) {
		if reached, err := c.Reached(l.done); reached || err != nil {
			return true
		}
	}
	return false
}

// abort ends the communicator at once. It may be called on any goroutine.
func (l *Lane) abort() {
	if c := l.current.Swap(nil); c != nil {
		if err := (*c).Abort(); err != nil {
			l.devices.options.Log.Debug("abort a communicator of NCCL", "error", err)
		}
	}
}

// Free returns memory, stream and event.
func (l *Lane) Free() {
	if l.place == nil {
		return
	}
	c := l.place.context
	l.zeros.free(c)
	l.scratch.free(c)
	l.arena.free(c)
	l.leave()
}

// failed is an error of CUDA or NCCL, about this rank.
func (l *Lane) failed(what string, err error) error {
	return fmt.Errorf("%s on %s: %w", what, l.devices.options.Describe(l.devices.options.Rank), err)
}

// failing is an operation that cannot begin.
type failing struct{ err error }

func (f failing) Advance() (bool, error) { return false, f.err }
