package hvd

import (
	"context"
	"errors"
	"fmt"
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
)

// Errors to test for with errors.Is.
var (
	// ErrNotInitialized: Init has not been called.
	ErrNotInitialized error = engine.ErrNotInitialized
	// ErrInvalidArgument: the operation was refused on this process alone.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrMismatch: the processes disagree about the operation; others may follow.
	ErrMismatch = errors.New("mismatch between ranks")
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

// Handle is an operation in progress.
type Handle struct{ entry *engine.Entry }

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
	h.entry = nil
	e.Release()
	return err
}

// Allreduce replaces data by the combination of all processes' data, elementwise.
// All processes give the same length. It blocks.
func Allreduce[T Number](ctx context.Context, name string, data []T, opts ...Option) error {
	h, err := allreduce(name, data, true, opts)
	if err != nil {
		return err
	}
	return h.Wait(ctx)
}

// AllreduceAsync is Allreduce that returns at once; data may be used after Wait.
func AllreduceAsync[T Number](name string, data []T, opts ...Option) (*Handle, error) {
	return allreduce(name, data, false, opts)
}

func allreduce[T Number](name string, data []T, willWait bool, opts []Option) (*Handle, error) {
	b := view(data)
	op := engine.Op{Type: negotiate.Allreduce, DType: dtype[T](), ReduceOp: Average, Name: name, Shape: tensor.Shape{int64(len(data))},
		Prescale: 1, Postscale: 1, In: b, Out: b, WillWait: willWait}
	for _, o := range opts {
		o(&op)
	}
	return enqueue(&op)
}

// Broadcast replaces data by that of the process with rank root. It blocks.
func Broadcast[T Number](ctx context.Context, name string, data []T, root int) error {
	b := view(data)
	h, err := enqueue(&engine.Op{Type: negotiate.Broadcast, DType: dtype[T](), Name: name, Root: root, Shape: tensor.Shape{int64(len(data))},
		Prescale: 1, Postscale: 1, In: b, Out: b, WillWait: true})
	if err != nil {
		return err
	}
	return h.Wait(ctx)
}

// Allgather returns the data of all processes one after another, in the order of
// the ranks. The lengths may differ. It blocks.
func Allgather[T Number](ctx context.Context, name string, data []T) ([]T, error) {
	var out []T
	h, err := enqueue(&engine.Op{Type: negotiate.Allgather, DType: dtype[T](), Name: name, Shape: tensor.Shape{int64(len(data))},
		Prescale: 1, Postscale: 1, In: view(data), WillWait: true,
		Alloc: func(shape tensor.Shape, _ int) ([]byte, error) {
			out = make([]T, shape[0])
			return view(out), nil
		}})
	if err != nil {
		return nil, err
	}
	if err := h.Wait(ctx); err != nil {
		return nil, err
	}
	return out, nil
}

// Barrier blocks until all processes have called it.
func Barrier(ctx context.Context) error {
	h, err := enqueue(&engine.Op{Type: negotiate.Barrier, DType: tensor.Uint8, Name: "barrier.noname", Prescale: 1, Postscale: 1, WillWait: true})
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
