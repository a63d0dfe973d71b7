package hvd

import (
	"context"
	"fmt"
	"math"

	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/operation"
)

// Allreduce replaces data by the combination of all processes' data, elementwise.
// All processes give the same length; else the error is ErrMismatch on all.
//
// The processes match their operations by name. One whose name is empty is matched by its number among
// those of its kind on its process set that have no name, as from 1 again after a Join.
//
// It blocks until the operation has ended or ctx has. As with every operation
// here that blocks, nothing is submitted if ctx has ended before; if it ends
// later, the operation goes on, and data must be left alone until Shutdown. Who
// means to wait again uses the asynchronous form.
func Allreduce[T Element](ctx context.Context, name string, data []T, opts ...Option) error {
	return run(ctx, newInPlace(operation.Allreduce, name, data, 0, opts))
}

// AllreduceAsync is Allreduce that returns at once; data may be used after Wait.
// As with every asynchronous form, an error that AllreduceAsync itself returns says
// that nothing has been submitted (ErrNotInitialized, ErrInvalidArgument, or
// ErrInternal); Wait returns what the processes have found out together.
func AllreduceAsync[T Element](name string, data []T, opts ...Option) (*Handle, error) {
	return enqueueInPlace(newInPlace(operation.Allreduce, name, data, 0, opts))
}

// Broadcast replaces data by that of the process with rank root (a rank of the
// job, in a process set too). All processes give the same length and root. It
// blocks as Allreduce does.
func Broadcast[T Element](ctx context.Context, name string, data []T, root int, opts ...Option) error {
	return run(ctx, newInPlace(operation.Broadcast, name, data, root, opts))
}

// BroadcastAsync is Broadcast that returns at once; data may be used after Wait.
func BroadcastAsync[T Element](name string, data []T, root int, opts ...Option) (*Handle, error) {
	return enqueueInPlace(newInPlace(operation.Broadcast, name, data, root, opts))
}

// Reduce replaces data on the process with rank root (a rank of the job, in a process set too) by the combination of
// all processes' data, elementwise; on the others data stays as it is. All processes give the same length and root,
// and the options of Allreduce but WithCompression; there is no Adasum. It blocks as Allreduce does: on the others
// until their data has been read, which may be before the root has its result.
func Reduce[T Element](ctx context.Context, name string, data []T, root int, opts ...Option) error {
	return run(ctx, newInPlace(operation.Reduce, name, data, root, opts))
}

// ReduceAsync is Reduce that returns at once; data may be used after Wait.
func ReduceAsync[T Element](name string, data []T, root int, opts ...Option) (*Handle, error) {
	return enqueueInPlace(newInPlace(operation.Reduce, name, data, root, opts))
}

// Allgather returns the data of all processes one after another, in the order of
// the ranks. The lengths may differ, and be 0. It blocks as Allreduce does.
func Allgather[T Element](ctx context.Context, name string, data []T, opts ...Option) ([]T, error) {
	out, _, err := gather[T](ctx, newOp(operation.Allgather, name, data, opts))
	return out, err
}

// AllgatherAsync is Allgather that returns at once; data may be used after Wait.
func AllgatherAsync[T Element](name string, data []T, opts ...Option) (*ResultHandle[T], error) {
	return gatherAsync[T](newOp(operation.Allgather, name, data, opts))
}

// Alltoall sends splits[r] elements of data to the process with rank r (of the
// process set, if there is one), one after another, and returns what the
// processes have sent to this one, in the order of the ranks, and how many
// elements each has sent. nil splits send the same number to all. Splits that
// are too few, negative, or in sum more than len(data) are an ErrInvalidArgument,
// and so is a len(data) that can't be divided evenly. It blocks as Allreduce does.
func Alltoall[T Element](ctx context.Context, name string, data []T, splits []int, opts ...Option) (out []T,
	received []int, err error) {
	op, err := newAlltoall(name, data, splits, opts)
	if err != nil {
		return nil, nil, err
	}
	return gather[T](ctx, op)
}

// AlltoallAsync is Alltoall that returns at once; data may be used after Wait.
// The number of elements of each process is then the handle's ReceivedSplits.
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

// Reducescatter combines all processes' data, elementwise, and returns this
// process's part: of n elements n/Size, and one more on the first n%Size
// processes. All processes give the same length. Average and Sum are possible;
// others are an ErrAborted. It blocks as Allreduce does.
func Reducescatter[T Element](ctx context.Context, name string, data []T, opts ...Option) ([]T, error) {
	out, _, err := gather[T](ctx, newOp(operation.Reducescatter, name, data, opts))
	return out, err
}

// ReducescatterAsync is Reducescatter that returns at once; data may be used
// after Wait.
func ReducescatterAsync[T Element](name string, data []T, opts ...Option) (*ResultHandle[T], error) {
	return gatherAsync[T](newOp(operation.Reducescatter, name, data, opts))
}

// Barrier blocks until all processes have called it, or ctx is done.
func Barrier(ctx context.Context, opts ...Option) error {
	return run(ctx, newOp[uint8](operation.Barrier, "", nil, opts))
}

// Join says that this process has no more data: until all processes have joined
// it takes part in the others' reductions with zeros. It blocks until then, and
// returns the rank that joined last.
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
