package engine

import (
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/negotiate"
)

// starts says how each kind begins. l.current.parts are the batch's; afterwards l.current.op is set, or the parts
// have been completed, or the engine aborts.
var starts = [256]func(l *lane, b *negotiate.Batch){
	operation.Allreduce:        (*lane).startReduction,
	operation.Adasum:           (*lane).startReduction,
	operation.Allgather:        (*lane).startAllgather,
	operation.Broadcast:        (*lane).startBroadcast,
	operation.Alltoall:         (*lane).startAlltoall,
	operation.Reducescatter:    (*lane).startReducescatter,
	operation.Barrier:          (*lane).startBarrier,
	operation.Reduce:           (*lane).startReduce,
	operation.Gather:           (*lane).startAlltoall,
	operation.Scatter:          (*lane).startAlltoall,
	operation.NamedBarrier:     (*lane).startNamedBarrier,
	operation.Pull:             (*lane).startKeys,
	operation.Push:             (*lane).startKeys,
	operation.Join:             (*lane).allJoined,
	operation.AddProcessSet:    (*lane).setAdded,
	operation.RemoveProcessSet: (*lane).setRemoved,
}

// startReduce lets a rank that has joined take part with zeros; the root has not.
func (l *lane) startReduce(b *negotiate.Batch) {
	x := &l.current
	p := &x.parts[0]
	root := l.member(int(p.resp.Root))
	var in, out []byte
	if p.entry != nil {
		in, out = p.entry.op.In, p.entry.op.Out
	} else {
		n, _ := p.resp.Shape.NumElements()
		if in = l.grow(int(n) * b.DType.Size()); in == nil {
			return
		}
		clear(in)
	}
	op, scale := operation.Combine(b.ReduceOp, b.Postscale, len(l.members))
	l.traceMove(x.parts)
	l.carry(collective.Arguments{Kind: collective.Reduce, Root: root, DType: b.DType, Reduce: op, In: in,
		Out: out, Prescale: b.Prescale, Postscale: scale})
}

// startBarrier has nothing to wait for: the record in the log says that all members have come. Another carrier has a
// barrier of its own, with which its library may do more.
func (l *lane) startBarrier(*negotiate.Batch) {
	if l.carriesItself() {
		l.finishCurrent()
		return
	}
	l.carry(collective.Arguments{Kind: collective.Barrier})
}

func (l *lane) startNamedBarrier(b *negotiate.Batch) {
	l.traceMove(l.current.parts)
	l.startBarrier(b)
}

func (l *lane) allJoined(b *negotiate.Batch) {
	l.alignNumbers()
	l.result(b.Responses[0].Root)
}

func (l *lane) setAdded(b *negotiate.Batch) {
	if d := l.engine.opts.Devices; d != nil {
		d.Share()
	}
	l.result(b.Responses[0].Root)
}

// setRemoved removes a process set, in steps. Operations of the set on devices may have ended for the program on one
// rank, and be unknown to another one, whose lane executes them meanwhile:
//
//	empty    each member waits for its lane and its device
//	barrier  all ranks wait for each other; members execute what the others wait for
//	empty    again, for what has been executed since
//	drop     the lane ends
func (l *lane) setRemoved(*negotiate.Batch) { l.empty((*lane).setEmptied) }

func (l *lane) setEmptied() {
	l.carry(collective.Arguments{Kind: collective.Barrier})
	l.current.then = func(l *lane) { l.empty((*lane).setDropped) }
}

func (l *lane) setDropped() {
	id := l.current.parts[0].resp.Root
	l.engine.dropSet(int(id))
	l.result(id)
}
