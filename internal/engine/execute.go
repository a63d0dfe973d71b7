package engine

import (
	"fmt"

	"github.com/gorovod/gorovod/internal/collective"
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/reduce"
	"github.com/gorovod/gorovod/internal/tensor"
)

// execution is what a lane is doing now.
type execution struct {
	op      collective.Op // nil: nothing
	entries []*Entry      // those that it completes
	fused   []byte        // their data side by side, if there are several
	buffer  fusionBuffer
	counts  []int64 // of an allgather, in bytes
}

// start begins the execution of b: afterwards an operation is current, or what b
// holds has been completed.
func (l *lane) start(b *negotiate.Batch) {
	x := &l.current
	x.entries = x.entries[:0]
	for _, resp := range b.Responses {
		en := l.entry(resp)
		if en == nil {
			l.engine.net.Abort(fmt.Errorf("protocol error: %s is told to execute %q, which it has not submitted", l.engine.opts.Describe(l.engine.opts.Rank), resp.Name))
			return
		}
		x.entries = append(x.entries, en)
	}
	first := b.Responses[0]
	if first.Err != "" {
		for _, en := range x.entries {
			l.complete(en, &Error{PreconditionError, first.Err})
		}
		return
	}
	switch first.Type {
	case negotiate.Allreduce:
		l.startAllreduce(b)
	case negotiate.Allgather:
		l.startAllgather(first)
	case negotiate.Broadcast:
		l.startBroadcast(first)
	case negotiate.Barrier:
		x.op = l.run.Barrier()
	default:
		l.complete(x.entries[0], errorf(UnknownError, "%s operations are not enabled.", opName(first.Type)))
	}
}

func (l *lane) startAllreduce(b *negotiate.Batch) {
	x := &l.current
	op, scale := b.ReduceOp, b.Postscale
	if op == tensor.Average {
		op = tensor.Sum
		scale /= float64(len(l.members))
	}
	if len(x.entries) == 1 {
		en := x.entries[0]
		in := en.op.In
		if b.Prescale != 1 {
			reduce.Scale(b.DType, en.op.Out, in, b.Prescale)
			in = en.op.Out
		}
		x.fused = nil
		x.op = l.run.Allreduce(b.DType, op, in, en.op.Out, scale)
		return
	}
	n := 0
	for _, en := range x.entries {
		n += len(en.op.In)
	}
	buf, err := x.buffer.grow(n)
	if err != nil {
		l.engine.net.Abort(fmt.Errorf("fusion buffer of %d bytes: %w", n, err))
		return
	}
	off := 0
	for _, en := range x.entries {
		part := buf[off : off+len(en.op.In)]
		if b.Prescale != 1 {
			reduce.Scale(b.DType, part, en.op.In, b.Prescale)
		} else {
			copy(part, en.op.In)
		}
		off += len(part)
	}
	x.fused = buf
	x.op = l.run.Allreduce(b.DType, op, buf, buf, scale)
}

func (l *lane) startAllgather(resp *negotiate.Response) {
	x := &l.current
	en := x.entries[0]
	row := int64(resp.DType.Size())
	for _, d := range resp.Shape[1:] {
		row *= d
	}
	x.counts = x.counts[:0]
	total := int64(0)
	for _, d := range resp.FirstDims {
		x.counts = append(x.counts, d*row)
		total += d * row
	}
	en.outShape = resp.Shape
	out, err := en.op.Alloc(resp.Shape, int(total))
	if err != nil {
		// The others go on without waiting for this rank only if it aborts.
		l.engine.net.Abort(fmt.Errorf("allgather %q on %s: output of %d bytes: %w", resp.Name, l.engine.opts.Describe(l.engine.opts.Rank), total, err))
		return
	}
	en.op.Out = out
	x.fused = nil
	x.op = l.run.Allgather(en.op.In, out, x.counts)
}

func (l *lane) startBroadcast(resp *negotiate.Response) {
	x := &l.current
	en := x.entries[0]
	root := l.member(int(resp.Root))
	if l.rank == root && len(en.op.In) > 0 && &en.op.In[0] != &en.op.Out[0] {
		copy(en.op.Out, en.op.In)
	}
	x.fused = nil
	x.op = l.run.Broadcast(root, en.op.Out)
}

// finishCurrent completes the Entries of the operation that is done.
func (l *lane) finishCurrent() {
	x := &l.current
	x.op = nil
	off := 0
	for _, en := range x.entries {
		if x.fused != nil {
			off += copy(en.op.Out, x.fused[off:off+len(en.op.Out)])
		}
		l.complete(en, nil)
	}
	x.fused = nil
}
