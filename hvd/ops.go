package hvd

import (
	"context"
	"fmt"
	"math"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/engine"
)

// Allreduce replaces data by the combination of all processes' data, elementwise: by
// default the average, see [WithOp]. All processes give the same length; otherwise
// the error is ErrMismatch on all.
//
// The processes match their operations by name. Operations with an empty name are
// numbered by kind and process set, and matched by that number. After a Join the
// numbers begin at 1 again.
//
// Allreduce blocks until the operation has ended or ctx is done. This holds for
// every operation here that blocks: if ctx is done before the call, nothing is
// submitted. If it is done later, the operation goes on, and you must leave data
// alone until Shutdown. To wait again, use the Async form.
func Allreduce[T Element](ctx context.Context, name string, data []T, opts ...Option) error {
	return run(ctx, newInPlace(operation.Allreduce, name, data, 0, opts))
}

// AllreduceAsync is Allreduce, but returns at once. Leave data alone until Wait has
// returned. This holds for every Async form: if it returns an error itself
// (ErrNotInitialized, ErrInvalidArgument or ErrInternal), nothing has been
// submitted. Wait returns the errors that the processes find together.
func AllreduceAsync[T Element](name string, data []T, opts ...Option) (*Handle, error) {
	return enqueueInPlace(newInPlace(operation.Allreduce, name, data, 0, opts))
}

// Broadcast replaces data by that of the process with rank root. In a process set,
// too, root is a rank of the job. All processes give the same length and root. It
// blocks as Allreduce does.
func Broadcast[T Element](ctx context.Context, name string, data []T, root int, opts ...Option) error {
	return run(ctx, newInPlace(operation.Broadcast, name, data, root, opts))
}

// BroadcastAsync is Broadcast, but returns at once. Leave data alone until Wait has returned.
func BroadcastAsync[T Element](name string, data []T, root int, opts ...Option) (*Handle, error) {
	return enqueueInPlace(newInPlace(operation.Broadcast, name, data, root, opts))
}

// Reduce combines all processes' data elementwise, as Allreduce does, and replaces data by the result on the process
// with rank root alone. In a process set, too, root is a rank of the job. All processes give the same length and root.
// It takes the options of Allreduce except WithCompression, and no Adasum. On root it blocks as Allreduce does. The
// other processes block only until their data has been read, which may be before root has its result.
func Reduce[T Element](ctx context.Context, name string, data []T, root int, opts ...Option) error {
	return run(ctx, newInPlace(operation.Reduce, name, data, root, opts))
}

// ReduceAsync is Reduce, but returns at once. Leave data alone until Wait has returned.
func ReduceAsync[T Element](name string, data []T, root int, opts ...Option) (*Handle, error) {
	return enqueueInPlace(newInPlace(operation.Reduce, name, data, root, opts))
}

// Allgather returns the data of all processes one after another, in the order of
// the ranks. The lengths may differ, and be 0. It blocks as Allreduce does.
func Allgather[T Element](ctx context.Context, name string, data []T, opts ...Option) ([]T, error) {
	out, _, err := gather[T](ctx, newOp(operation.Allgather, name, data, opts))
	return out, err
}

// AllgatherAsync is Allgather, but returns at once. Leave data alone until Wait has returned.
func AllgatherAsync[T Element](name string, data []T, opts ...Option) (*ResultHandle[T], error) {
	return gatherAsync[T](newOp(operation.Allgather, name, data, opts))
}

// Alltoall cuts data into one part for each process, splits[r] elements long for
// rank r, and sends them. In a process set r counts its members. It returns the
// elements that the processes have sent to this one, in the order of the ranks, and
// the number of elements from each. nil splits send the same number to all.
//
// The error is ErrInvalidArgument for splits that are too few, negative, or in sum
// more than len(data), and, without splits, for a len(data) that can't be divided
// evenly. It blocks as Allreduce does.
func Alltoall[T Element](ctx context.Context, name string, data []T, splits []int, opts ...Option) (out []T,
	received []int, err error) {
	op, err := newAlltoall(name, data, splits, opts)
	if err != nil {
		return nil, nil, err
	}
	return gather[T](ctx, op)
}

// AlltoallAsync is Alltoall, but returns at once. After Wait the handle's
// ReceivedSplits has the number of elements from each process.
func AlltoallAsync[T Element](name string, data []T, splits []int, opts ...Option) (*ResultHandle[T], error) {
	op, err := newAlltoall(name, data, splits, opts)
	if err != nil {
		return nil, err
	}
	return gatherAsync[T](op)
}

func newAlltoall[T Element](name string, data []T, splits []int, opts []Option) (*call, error) {
	op := newOp(operation.Alltoall, name, data, opts)
	for _, s := range splits {
		if s < 0 || s > math.MaxInt32 {
			return nil, fmt.Errorf("hvd: alltoall %q: a split of %d: %w", name, s, ErrInvalidArgument)
		}
		op.Splits = append(op.Splits, int32(s))
	}
	return op, nil
}

// Reducescatter combines all processes' data elementwise, and returns this process's
// part: of n elements n/Size, and one more on the first n%Size processes. All
// processes give the same length. For Adasum the error is ErrAborted. It blocks as
// Allreduce does.
func Reducescatter[T Element](ctx context.Context, name string, data []T, opts ...Option) ([]T, error) {
	out, _, err := gather[T](ctx, newOp(operation.Reducescatter, name, data, opts))
	return out, err
}

// ReducescatterAsync is Reducescatter, but returns at once. Leave data alone until
// Wait has returned.
func ReducescatterAsync[T Element](name string, data []T, opts ...Option) (*ResultHandle[T], error) {
	return gatherAsync[T](newOp(operation.Reducescatter, name, data, opts))
}

// Barrier blocks until all processes have called it, or ctx is done.
func Barrier(ctx context.Context, opts ...Option) error {
	return run(ctx, newOp[uint8](operation.Barrier, "", nil, opts))
}

// Join says that this process has no more data. It blocks until all processes have
// joined, and returns the rank that joined last. Meanwhile this process takes part
// in the others' reductions with zeros.
func Join(ctx context.Context) (last int, err error) {
	if err := ctx.Err(); err != nil {
		return -1, named(operation.Join, "", err)
	}
	op := newOp[uint8](operation.Join, "", nil, nil)
	op.WillWait = true
	h, err := enqueue(op)
	if err != nil {
		return -1, err
	}
	h.result = func(e *engine.Entry) { last = e.LastJoined() }
	if err := h.Wait(ctx); err != nil {
		return -1, err
	}
	return last, nil
}
