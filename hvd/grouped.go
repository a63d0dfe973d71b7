package hvd

import (
	"context"
	"fmt"

	"github.com/gorovod/gorovod/internal/engine"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/process"
)

// GroupedAllreduce is Allreduce of several slices of which none is reduced before
// all are ready on every process. All processes give as many slices under the
// same name; the tensors are called name_1of3 and so on. It blocks until all are
// done or ctx is, and returns the first error.
func GroupedAllreduce[T Element](ctx context.Context, name string, data [][]T, opts ...Option) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	handles, err := GroupedAllreduceAsync(name, data, opts...)
	for _, h := range handles {
		err = firstError(err, h.Wait(ctx))
	}
	return err
}

// GroupedAllreduceAsync is GroupedAllreduce that returns at once. Either all
// slices are submitted or, with an error, none. The Handles are in the order of data.
func GroupedAllreduceAsync[T Element](name string, data [][]T, opts ...Option) ([]*Handle, error) {
	return group(negotiate.Allreduce, name, data, opts, func(_ int, op *operation) { op.Out = op.In })
}

// GroupedAllgather is Allgather of several slices, with a result for each in the
// order of data; see GroupedAllreduce.
func GroupedAllgather[T Element](ctx context.Context, name string, data [][]T, opts ...Option) ([][]T, error) {
	return collect(ctx, negotiate.Allgather, name, data, opts)
}

// GroupedAllgatherAsync is GroupedAllgather that returns at once.
func GroupedAllgatherAsync[T Element](name string, data [][]T, opts ...Option) ([]*ResultHandle[T], error) {
	return groupOfResults(negotiate.Allgather, name, data, opts)
}

// GroupedReducescatter is Reducescatter of several slices, with this process's
// part of each in the order of data; see GroupedAllreduce.
func GroupedReducescatter[T Element](ctx context.Context, name string, data [][]T, opts ...Option) ([][]T, error) {
	return collect(ctx, negotiate.Reducescatter, name, data, opts)
}

// GroupedReducescatterAsync is GroupedReducescatter that returns at once.
func GroupedReducescatterAsync[T Element](name string, data [][]T, opts ...Option) ([]*ResultHandle[T], error) {
	return groupOfResults(negotiate.Reducescatter, name, data, opts)
}

// collect waits for the results of a group.
func collect[T Element](ctx context.Context, t negotiate.RequestType, name string, data [][]T, opts []Option) ([][]T, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	handles, err := groupOfResults(t, name, data, opts)
	results := make([][]T, len(handles))
	for i, h := range handles {
		out, failure := h.Wait(ctx)
		results[i], err = out, firstError(err, failure)
	}
	if err != nil {
		return nil, err
	}
	return results, nil
}

func groupOfResults[T Element](t negotiate.RequestType, name string, data [][]T, opts []Option) ([]*ResultHandle[T], error) {
	results := make([]*ResultHandle[T], len(data))
	handles, err := group(t, name, data, opts, func(i int, op *operation) {
		results[i] = new(ResultHandle[T])
		results[i].allocate(op)
	})
	if err != nil {
		return nil, err
	}
	for i, h := range handles {
		results[i].h = h
	}
	return results, nil
}

// group submits an operation for each of data after output has said where its
// result goes.
func group[T Element](t negotiate.RequestType, name string, data [][]T, opts []Option, output func(i int, op *operation)) ([]*Handle, error) {
	ops := make([]engine.Op, len(data))
	for i, d := range data {
		op := newOp(t, fmt.Sprintf("%s_%dof%d", name, i+1, len(data)), d, opts)
		if op.handle != nil {
			return nil, op.refused(errNoHandle)
		}
		if err := op.resolve(); err != nil {
			return nil, err
		}
		output(i, op)
		ops[i] = op.Op
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
