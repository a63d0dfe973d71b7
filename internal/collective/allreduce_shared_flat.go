package collective

import (
	"github.com/gorovod/gorovod/internal/reduce"
	"github.com/gorovod/gorovod/internal/transport"
)

// allreduceSharedFlat is the allreduce of small data in shared memory: each
// member copies its whole input into its buffer, then each reduces all members'
// buffers in the order of the ranks.
//
// Steps: one synchronisation, one chunk. Bytes: each member writes n and reads
// size×n, all in the cache. Chosen while size×n is at most flatBytes and n fits
// into one buffer.
type allreduceSharedFlat struct {
	lane    *Lane
	todo    reduction
	chunk   uint64
	entered bool
}

func (a *allreduceSharedFlat) start(l *Lane, r reduction) Op {
	*a = allreduceSharedFlat{lane: l, todo: r, chunk: l.chunks(1)}
	return a
}

func (a *allreduceSharedFlat) Advance() (bool, error) {
	l, n := a.lane, len(a.todo.in)
	if !a.entered {
		if !l.free(a.chunk) {
			return false, nil
		}
		copy(l.shared.Buffer(l.rank, a.chunk), a.todo.in)
		l.publish(transport.In, a.chunk+1)
		a.entered = true
	}
	if !l.reached(transport.In, a.chunk+1) {
		return false, nil
	}
	for m := range l.srcs {
		l.srcs[m] = l.shared.Buffer(m, a.chunk)[:n]
	}
	reduce.Reduce(a.todo.dt, a.todo.op, a.todo.out, l.srcs, a.todo.scale)
	l.publish(transport.Out, a.chunk+1)
	l.end()
	return true, nil
}
