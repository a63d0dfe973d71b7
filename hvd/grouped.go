package hvd

import (
	"context"
	"sync"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/engine"
	"github.com/gorovod/gorovod/internal/joining/process"
)

// GroupedAllreduce is Allreduce of several slices. It reduces none of them before all
// are ready on every process. All processes give the same name and the same number
// of slices. The tensors are called name_1of3 and so on. It blocks until all have
// been reduced or ctx is done, and returns the first error.
func GroupedAllreduce[T Element](ctx context.Context, name string, data [][]T, opts ...Option) error {
	if err := ctx.Err(); err != nil {
		return named(operation.Allreduce, name, err)
	}
	entries, err := group(operation.Allreduce, name, data, opts,
		func(_ int, op *engine.Op) { op.Out, op.WillWait = op.In, true })
	for _, e := range entries {
		h := Handle{entry: e}
		err = firstError(err, h.Wait(ctx))
	}
	return err
}

// GroupedAllreduceAsync is GroupedAllreduce, but returns at once. Either all slices
// are submitted or, with an error, none. The Handles are in the order of data.
func GroupedAllreduceAsync[T Element](name string, data [][]T, opts ...Option) ([]*Handle, error) {
	entries, err := group(operation.Allreduce, name, data, opts, func(_ int, op *engine.Op) { op.Out = op.In })
	if err != nil {
		return nil, err
	}
	return handles(entries), nil
}

// GroupedAllgather is Allgather of several slices, with a result for each in the
// order of data; see GroupedAllreduce.
func GroupedAllgather[T Element](ctx context.Context, name string, data [][]T, opts ...Option) ([][]T, error) {
	return collect(ctx, operation.Allgather, name, data, opts)
}

// GroupedAllgatherAsync is GroupedAllgather, but returns at once.
func GroupedAllgatherAsync[T Element](name string, data [][]T, opts ...Option) ([]*ResultHandle[T], error) {
	return groupOfResults(operation.Allgather, name, data, opts)
}

// GroupedReducescatter is Reducescatter of several slices, with this process's
// part of each in the order of data; see GroupedAllreduce.
func GroupedReducescatter[T Element](ctx context.Context, name string, data [][]T, opts ...Option) ([][]T, error) {
	return collect(ctx, operation.Reducescatter, name, data, opts)
}

// GroupedReducescatterAsync is GroupedReducescatter, but returns at once.
func GroupedReducescatterAsync[T Element](name string, data [][]T, opts ...Option) ([]*ResultHandle[T], error) {
	return groupOfResults(operation.Reducescatter, name, data, opts)
}

// collect waits for the results of a group.
func collect[T Element](ctx context.Context, t operation.Kind, name string, data [][]T, opts []Option) ([][]T, error) {
	if err := ctx.Err(); err != nil {
		return nil, named(t, name, err)
	}
	pending, err := groupOfResults(t, name, data, opts)
	results := make([][]T, len(pending))
	for i, h := range pending {
		out, failure := h.Wait(ctx)
		results[i], err = out, firstError(err, failure)
	}
	if err != nil {
		return nil, err
	}
	return results, nil
}

func groupOfResults[T Element](t operation.Kind, name string, data [][]T, opts []Option) ([]*ResultHandle[T], error) {
	results := make([]*ResultHandle[T], len(data))
	entries, err := group(t, name, data, opts, func(i int, op *engine.Op) {
		results[i] = new(ResultHandle[T])
		results[i].allocate(op)
	})
	if err != nil {
		return nil, err
	}
	for i, h := range handles(entries) {
		results[i].h = h
	}
	return results, nil
}

// handles makes a Handle for each operation of a group.
func handles(entries []*engine.Entry) []*Handle {
	all := make([]Handle, len(entries))
	handles := make([]*Handle, len(entries))
	for i, e := range entries {
		all[i].entry = e
		handles[i] = &all[i]
	}
	return handles
}

// groupMemory describes a group until the engine has its copy. It is pooled, because a thousand tensors need much
// memory: without the pool the garbage collector would run every few calls.
type groupMemory struct {
	ops     []engine.Op
	lengths []int64 // back the Shapes
	names   []byte
	ends    []int // where each tensor's name ends in names
}

var groupMemories = sync.Pool{New: func() any { return new(groupMemory) }}

// recycle ends the use of m.
func (m *groupMemory) recycle() {
	clear(m.ops) // so that it does not keep a caller's data alive
	m.ops, m.lengths, m.names, m.ends = m.ops[:0], m.lengths[:0], m.names[:0], m.ends[:0]
	groupMemories.Put(m)
}

// name writes the names of n tensors.
func (m *groupMemory) name(group string, n int) {
	for i := range n {
		m.names = operation.AppendMember(m.names, group, i, n)
		m.ends = append(m.ends, len(m.names))
	}
}

// group submits one operation for each slice of data. output sets where the operation's result goes.
func group[T Element](t operation.Kind, name string, data [][]T, opts []Option,
	output func(i int, op *engine.Op)) ([]*engine.Entry, error) {
	m := groupMemories.Get().(*groupMemory)
	defer m.recycle()
	m.name(name, len(data))
	names, begin := string(m.names), 0
	common := newOp[T](t, name, nil, opts) // what all operations of the group have in common
	defer common.recycle()
	if common.handle != nil {
		return nil, common.refused(errNoHandle)
	}
	if err := common.resolve(); err != nil {
		return nil, err
	}
	for _, d := range data {
		m.lengths = append(m.lengths, int64(len(d)))
	}
	for i, d := range data {
		m.ops = append(m.ops, common.Op)
		op := &m.ops[i]
		op.Name, begin = names[begin:m.ends[i]], m.ends[i]
		op.Shape, op.In = m.lengths[i:i+1], view(d)
		output(i, op)
	}
	entries, failure := process.EnqueueGroup(name, m.ops)
	if failure != nil {
		return nil, named(t, name, wrap(failure))
	}
	return entries, nil
}
