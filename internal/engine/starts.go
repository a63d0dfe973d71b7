package engine

import (
	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/operation"
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
	operation.Join:             (*lane).allJoined,
	operation.AddProcessSet:    (*lane).setAdded,
	operation.RemoveProcessSet: (*lane).setRemoved,
}

func (l *lane) startBarrier(*negotiate.Batch) { l.current.op = l.run.Barrier() }

func (l *lane) allJoined(b *negotiate.Batch) {
	l.alignNumbers()
	l.result(b.Responses[0].Root)
}

func (l *lane) setAdded(b *negotiate.Batch) { l.result(b.Responses[0].Root) }

func (l *lane) setRemoved(b *negotiate.Batch) {
	l.engine.dropSet(int(b.Responses[0].Root))
	l.result(b.Responses[0].Root)
}
