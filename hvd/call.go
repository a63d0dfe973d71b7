package hvd

import (
	"context"
	"fmt"
	"sync"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/process"
)

// ReduceOp says how the processes' elements are combined.
type ReduceOp = tensor.ReduceOp

// The reduce operations. Average of integers truncates towards zero. Min and Max
// propagate NaN. BitAnd, BitOr and BitXor combine the bits of integers, and bools.
const (
	Average = tensor.Average
	Sum     = tensor.Sum
	Min     = tensor.Min
	Max     = tensor.Max
	Product = tensor.Product
	BitAnd  = tensor.BitAnd
	BitOr   = tensor.BitOr
	BitXor  = tensor.BitXor
	// Adasum combines gradients so that orthogonal ones add and parallel ones
	// average (arXiv:2006.02924).
	Adasum = tensor.Adasum
)

// Option changes an operation.
type Option func(*call)

// WithOp chooses the reduce operation; Average is the default.
func WithOp(op ReduceOp) Option { return func(o *call) { o.ReduceOp = op } }

// WithPrescale multiplies each process's data before it is combined.
func WithPrescale(f float64) Option { return func(o *call) { o.Prescale = f } }

// WithPostscale multiplies the combined data.
func WithPostscale(f float64) Option { return func(o *call) { o.Postscale = f } }

// Compression is the form in which an allreduce travels between hosts: unchanged, or with 16 or 8 bits per number.
// Partial sums keep the type of the elements, and nothing is compressed inside a host. Only sums and averages of
// float32 and float64 heed it.
type Compression = tensor.Wire

// The compressions. With NoCompression the variable GOROVOD_COMPRESSION decides.
const (
	NoCompression = tensor.WireAsIs
	FP16          = tensor.WireFloat16
	BF16          = tensor.WireBFloat16

	// Int8 sends blocks of 32 numbers with a common scale, of float32 only. This process keeps the errors of a tensor
	// by its name and process set, and adds them to the next Allreduce of that name, so that they do not add up over
	// the steps of a training. It is ErrInvalidArgument with GOROVOD_DETERMINISTIC=1 and HOROVOD_CACHE_CAPACITY=0.
	Int8 = tensor.WireInt8
	// FP8 is as Int8, but its numbers are floats of 8 bits: the small ones of a block lose less, the large ones more.
	FP8 = tensor.WireFloat8
)

// WithCompression asks for c, the same on all processes.
func WithCompression(c Compression) Option { return func(o *call) { o.Wire = c } }

// WithProcessSet runs the operation among the members of s. Only they may call it:
// on other processes the error is ErrInvalidArgument. It is ErrUnknownSet if s is
// not registered. nil means all processes.
func WithProcessSet(s *ProcessSet) Option { return func(o *call) { o.set = s } }

// WithHandle makes AllreduceAsync, BroadcastAsync and ReduceAsync use and return h instead of a new handle. So a loop
// that keeps its handles and options allocates nothing. h must be the zero Handle, or its Wait must have returned its
// last operation's outcome. Otherwise, and for other operations, the error is ErrInvalidArgument.
func WithHandle(h *Handle) Option { return func(o *call) { o.handle = h } }

// call is an operation before its submission. The submission returns it to the pool.
type call struct {
	engine.Op
	set    *ProcessSet // nil: all processes
	handle *Handle     // nil: a new one
	length [1]int64    // backs Shape
}

var calls = sync.Pool{New: func() any { return new(call) }}

// recycle ends the use of op: the engine keeps a copy.
func (op *call) recycle() {
	*op = call{} // so that it does not keep a caller's data alive
	calls.Put(op)
}

// newOp describes an operation on data as a tensor of one dimension.
func newOp[T Element](t operation.Kind, name string, data []T, opts []Option) *call {
	op := calls.Get().(*call)
	op.length[0] = int64(len(data))
	op.Op = engine.Op{Type: t, DType: dtype[T](), ReduceOp: Average, Name: name, Unnamed: name == "",
		Shape: op.length[:], Prescale: 1, Postscale: 1, In: view(data)}
	for _, o := range opts {
		o(op)
	}
	op.Type = operation.Of(t, op.ReduceOp)
	return op
}

// newInPlace describes an operation whose result replaces data. root is 0 where the operation has none.
func newInPlace[T Element](t operation.Kind, name string, data []T, root int, opts []Option) *call {
	op := newOp(t, name, data, opts)
	op.Root, op.Out = root, op.In
	return op
}

// resolve sets the number of op's process set.
func (op *call) resolve() error {
	if op.set == nil {
		return nil
	}
	id, err := op.set.registered()
	if err != nil {
		return op.refused(err)
	}
	op.Set = id
	return nil
}

// refused adds the operation's kind and name to err.
func (op *call) refused(err error) error { return named(op.Type, op.Name, err) }

// run executes op. If ctx has ended already, nothing is submitted.
func run(ctx context.Context, op *call) error {
	if err := ctx.Err(); err != nil {
		return op.refused(err)
	}
	op.WillWait = true
	e, err := submit(op)
	if err != nil {
		return err
	}
	h := Handle{entry: e}
	return h.Wait(ctx)
}

// submit hands op to the engine, and recycles it.
func submit(op *call) (*engine.Entry, error) {
	defer op.recycle()
	if op.handle != nil {
		return nil, op.refused(errNoHandle)
	}
	if err := op.resolve(); err != nil {
		return nil, err
	}
	e, failure := process.Enqueue(&op.Op)
	if failure != nil {
		return nil, named(op.Type, op.Name, wrap(failure))
	}
	return e, nil
}

// The wrong uses of WithHandle.
var (
	errNoHandle = fmt.Errorf("WithHandle is for AllreduceAsync, BroadcastAsync and ReduceAsync: %w",
		ErrInvalidArgument)
	errHandleBusy = fmt.Errorf("WithHandle: its last operation has not been waited for: %w", ErrInvalidArgument)
)

// enqueue submits and recycles op, and gives the operation a new handle.
func enqueue(op *call) (*Handle, error) {
	e, err := submit(op)
	if err != nil {
		return nil, err
	}
	return &Handle{entry: e}, nil
}

// enqueueInPlace is enqueue, but prefers the handle of WithHandle.
func enqueueInPlace(op *call) (*Handle, error) {
	h := op.handle
	if h == nil {
		return enqueue(op)
	}
	op.handle = nil
	if h.entry != nil {
		err := op.refused(errHandleBusy)
		op.recycle()
		return nil, err
	}
	e, err := submit(op)
	if err != nil {
		return nil, err
	}
	h.entry = e
	return h, nil
}

// gather executes an operation. Its output is allocated when its size is known.
func gather[T Element](ctx context.Context, op *call) (out []T, received []int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, op.refused(err)
	}
	op.WillWait = true
	h, err := gatherAsync[T](op)
	if err != nil {
		return nil, nil, err
	}
	out, err = h.Wait(ctx)
	return out, h.received, err
}

func gatherAsync[T Element](op *call) (*ResultHandle[T], error) {
	r := new(ResultHandle[T])
	r.allocate(&op.Op)
	alltoall := op.Type.Describe().Output == operation.Sent
	h, err := enqueue(op)
	if err != nil {
		return nil, err
	}
	r.h = h
	if alltoall {
		h.result = func(e *engine.Entry) {
			for _, n := range e.ReceivedSplits() {
				r.received = append(r.received, int(n))
			}
		}
	}
	return r, nil
}

// allocate makes op write its output to a new slice, and gives that to h.
func (h *ResultHandle[T]) allocate(op *engine.Op) {
	op.Alloc = func(shape tensor.Shape, _ int) ([]byte, error) {
		h.out = make([]T, shape[0])
		return view(h.out), nil
	}
}
