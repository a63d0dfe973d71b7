package hvd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/process"
	"github.com/gorovod/gorovod/internal/tensor"
)

// Number is an element type that Go has. For float16 and bfloat16 data use
// []uint16 through the C interface.
type Number interface {
	uint8 | int8 | uint16 | int16 | int32 | int64 | float32 | float64
}

// ReduceOp says how the processes' elements are combined.
type ReduceOp = tensor.ReduceOp

// The reduce operations. Average of integers truncates towards zero. Min and Max
// propagate NaN.
const (
	Average = tensor.Average
	Sum     = tensor.Sum
	Min     = tensor.Min
	Max     = tensor.Max
	Product = tensor.Product
	// Adasum combines gradients so that orthogonal ones add and parallel ones
	// average (arXiv:2006.02924).
	Adasum = tensor.Adasum
)

// Errors to test for with errors.Is.
var (
	// ErrNotInitialized: Init has not been called.
	ErrNotInitialized error = engine.ErrNotInitialized
	// ErrInvalidArgument: the operation was refused on this process alone.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrMismatch: the processes disagree about the operation; others may follow.
	ErrMismatch = errors.New("mismatch between ranks")
	// ErrAborted: the operation was not executed, because its process set has been
	// removed, or because there is no such reduction; others may follow.
	ErrAborted = errors.New("aborted")
	// ErrInternal: the job has failed, for example because a process has died, or
	// has been shut down. Every later operation fails until Shutdown and Init.
	ErrInternal = errors.New("internal error")
)

// opError is an engine's error with the sentinel of its kind.
type opError struct {
	kind error
	err  *engine.Error
}

func (e *opError) Error() string   { return e.err.Reason }
func (e *opError) Unwrap() []error { return []error{e.kind, e.err} }

// wrap makes the error that callers see.
func wrap(e *engine.Error) error {
	switch {
	case e == nil:
		return nil
	case e == engine.ErrNotInitialized:
		return ErrNotInitialized
	case e.Code == engine.InvalidArgument:
		return &opError{ErrInvalidArgument, e}
	case e.Code == engine.PreconditionError:
		return &opError{ErrMismatch, e}
	case e.Code == engine.Aborted:
		return &opError{ErrAborted, e}
	}
	return &opError{ErrInternal, e}
}

// Option changes an operation.
type Option func(*engine.Op)

// WithOp chooses the reduce operation; Average is the default.
func WithOp(op ReduceOp) Option { return func(o *engine.Op) { o.ReduceOp = op } }

// WithPrescale multiplies each process's data before it is combined.
func WithPrescale(f float64) Option { return func(o *engine.Op) { o.Prescale = f } }

// WithPostscale multiplies the combined data.
func WithPostscale(f float64) Option { return func(o *engine.Op) { o.Postscale = f } }

// WithProcessSet lets the operation run among the members of s.
func WithProcessSet(s *ProcessSet) Option { return func(o *engine.Op) { o.Set = s.id } }

// Handle is an operation in progress.
type Handle struct {
	entry  *engine.Entry
	result func(*engine.Entry) // takes what the Entry has resulted in, before it goes
}

// Done reports whether the operation has ended, so that Wait would not block.
func (h *Handle) Done() bool { return h.entry == nil || h.entry.Done() }

// waitSlice bounds how late Wait sees that its context has ended.
const waitSlice = 50 * time.Millisecond

// Wait blocks until the operation has ended or ctx is done; then the operation
// goes on, and Wait may be called again. After it has returned the operation's
// outcome, the Handle is spent.
func (h *Handle) Wait(ctx context.Context) error {
	e := h.entry
	if e == nil {
		return errors.New("hvd: Wait on a handle whose operation has been waited for")
	}
	for !e.Done() {
		if err := ctx.Err(); err != nil {
			return err
		}
		d := time.Duration(-1)
		if ctx.Done() != nil {
			d = waitSlice
		}
		e.Wait(d)
	}
	err := wrap(e.Err())
	if err == nil && h.result != nil {
		h.result(e)
	}
	h.entry = nil
	e.Release()
	return err
}

// newOp describes an operation on data as a tensor of one dimension.
func newOp[T Number](t negotiate.RequestType, name string, data []T, opts []Option) engine.Op {
	op := engine.Op{Type: t, DType: dtype[T](), ReduceOp: Average, Name: name, Shape: tensor.Shape{int64(len(data))},
		Prescale: 1, Postscale: 1, In: view(data)}
	for _, o := range opts {
		o(&op)
	}
	if op.Type == negotiate.Allreduce && op.ReduceOp == Adasum {
		op.Type = negotiate.Adasum
	}
	return op
}

// Allreduce replaces data by the combination of all processes' data, elementwise.
// All processes give the same length. It blocks.
func Allreduce[T Number](ctx context.Context, name string, data []T, opts ...Option) error {
	op := newOp(negotiate.Allreduce, name, data, opts)
	op.Out, op.WillWait = op.In, true
	return run(ctx, &op)
}

// AllreduceAsync is Allreduce that returns at once; data may be used after Wait.
func AllreduceAsync[T Number](name string, data []T, opts ...Option) (*Handle, error) {
	op := newOp(negotiate.Allreduce, name, data, opts)
	op.Out = op.In
	return enqueue(&op)
}

// GroupedAllreduceAsync submits several slices of which none is reduced before
// all are ready on every process. The Handles are in the order of data; name[i]
// is not needed: the tensors are called name_1of3 and so on.
func GroupedAllreduceAsync[T Number](name string, data [][]T, opts ...Option) ([]*Handle, error) {
	ops := make([]engine.Op, len(data))
	for i, d := range data {
		ops[i] = newOp(negotiate.Allreduce, fmt.Sprintf("%s_%dof%d", name, i+1, len(data)), d, opts)
		ops[i].Out = ops[i].In
	}
	entries, failure := process.EnqueueGroup(name, ops)
	if failure != nil {
		return nil, wrap(failure)
	}
	handles := make([]*Handle, len(entries))
	for i, e := range entries {
		handles[i] = &Handle{entry: e}
	}
	return handles, nil
}

// GroupedAllreduce is GroupedAllreduceAsync that blocks until all are done; it
// returns the first error.
func GroupedAllreduce[T Number](ctx context.Context, name string, data [][]T, opts ...Option) error {
	handles, err := GroupedAllreduceAsync(name, data, opts...)
	for _, h := range handles {
		err = firstError(err, h.Wait(ctx))
	}
	return err
}

// Broadcast replaces data by that of the process with rank root (a rank of the
// job, in a process set too). It blocks.
func Broadcast[T Number](ctx context.Context, name string, data []T, root int, opts ...Option) error {
	op := newOp(negotiate.Broadcast, name, data, opts)
	op.Root, op.Out, op.WillWait = root, op.In, true
	return run(ctx, &op)
}

// Allgather returns the data of all processes one after another, in the order of
// the ranks. The lengths may differ. It blocks.
func Allgather[T Number](ctx context.Context, name string, data []T, opts ...Option) ([]T, error) {
	op := newOp(negotiate.Allgather, name, data, opts)
	return gather[T](ctx, &op, nil)
}

// Alltoall sends splits[r] elements of data to the process with rank r, one
// after another, and returns what the processes have sent to this one, in the
// order of the ranks, and how many elements each has sent. nil splits send the
// same number to all. It blocks.
func Alltoall[T Number](ctx context.Context, name string, data []T, splits []int, opts ...Option) (out []T, received []int, err error) {
	op := newOp(negotiate.Alltoall, name, data, opts)
	for _, s := range splits {
		if s < 0 || s > math.MaxInt32 {
			return nil, nil, fmt.Errorf("hvd: alltoall %q: a split of %d: %w", name, s, ErrInvalidArgument)
		}
		op.Splits = append(op.Splits, int32(s))
	}
	out, err = gather[T](ctx, &op, func(e *engine.Entry) {
		for _, n := range e.ReceivedSplits() {
			received = append(received, int(n))
		}
	})
	return out, received, err
}

// Reducescatter combines all processes' data, elementwise, and returns this
// process's part: of n elements n/Size, and one more on the first n%Size
// processes. Average and Sum are possible. It blocks.
func Reducescatter[T Number](ctx context.Context, name string, data []T, opts ...Option) ([]T, error) {
	op := newOp(negotiate.Reducescatter, name, data, opts)
	return gather[T](ctx, &op, nil)
}

// Barrier blocks until all processes have called it.
func Barrier(ctx context.Context, opts ...Option) error {
	op := newOp[uint8](negotiate.Barrier, "barrier.noname", nil, opts)
	op.WillWait = true
	return run(ctx, &op)
}

// Join says that this process has no more data: until all processes have joined
// it takes part in the others' reductions with zeros. It blocks until then, and
// returns the rank that joined last.
func Join(ctx context.Context) (last int, err error) {
	op := newOp[uint8](negotiate.Join, engine.JoinName, nil, nil)
	op.WillWait = true
	h, err := enqueue(&op)
	if err != nil {
		return -1, err
	}
	h.result = func(e *engine.Entry) { last = e.LastJoined() }
	if err := h.Wait(ctx); err != nil {
		return -1, err
	}
	return last, nil
}

// Send sends data to the process with rank to, apart from the collectives. It
// returns when data may be reused. Messages with the same tag arrive in order.
func Send[T Number](ctx context.Context, to int, tag uint32, data []T) error {
	return process.Send(ctx, to, tag, view(data))
}

// Recv receives a message with this tag from the process with rank from into
// data, and returns its length in elements. A longer message is an error. It blocks.
func Recv[T Number](ctx context.Context, from int, tag uint32, data []T) (int, error) {
	n, err := process.Recv(ctx, from, tag, view(data))
	var zero T
	return n / int(unsafe.Sizeof(zero)), err
}

// gather runs an operation whose output is made when its size is known.
func gather[T Number](ctx context.Context, op *engine.Op, result func(*engine.Entry)) ([]T, error) {
	var out []T
	op.WillWait = true
	op.Alloc = func(shape tensor.Shape, _ int) ([]byte, error) {
		out = make([]T, shape[0])
		return view(out), nil
	}
	h, err := enqueue(op)
	if err != nil {
		return nil, err
	}
	h.result = result
	if err := h.Wait(ctx); err != nil {
		return nil, err
	}
	return out, nil
}

func run(ctx context.Context, op *engine.Op) error {
	h, err := enqueue(op)
	if err != nil {
		return err
	}
	return h.Wait(ctx)
}

func enqueue(op *engine.Op) (*Handle, error) {
	e, failure := process.Enqueue(op)
	if failure != nil {
		return nil, wrap(failure)
	}
	return &Handle{entry: e}, nil
}

// view is the memory of data.
func view[T Number](data []T) []byte {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*int(unsafe.Sizeof(data[0])))
}

func dtype[T Number]() tensor.DType {
	var zero T
	switch any(zero).(type) {
	case uint8:
		return tensor.Uint8
	case int8:
		return tensor.Int8
	case uint16:
		return tensor.Uint16
	case int16:
		return tensor.Int16
	case int32:
		return tensor.Int32
	case int64:
		return tensor.Int64
	case float32:
		return tensor.Float32
	case float64:
		return tensor.Float64
	}
	panic(fmt.Sprintf("hvd: no data type for %T", zero)) // Number admits no other
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
