package collective

import (
	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// allreduceSharedFlat is the allreduce of small data in shared memory: each
// member copies its whole input into its buffer, then each reduces all members'
// buffers in the order of the ranks.
//
// Steps: one synchronisation, one chunk. Bytes: each member writes n and reads
// size×n, all in the cache; results of several parts are copied once more.
// Chosen while size×n is at most flatBytes and n fits into one buffer.
type allreduceSharedFlat struct {
	lane    *Lane
	todo    layout
	chunk   uint64
	entered bool
}

func (a *allreduceSharedFlat) start(l *Lane, s layout) Op {
	l.sent[feed.ByMemory] += uint64(s.bytes)
	*a = allreduceSharedFlat{lane: l, todo: s, chunk: l.chunks(1)}
	return a
}

func (a *allreduceSharedFlat) Advance() (bool, error) {
	l, s := a.lane, &a.todo
	if !a.entered {
		if !l.free(a.chunk) {
			return false, nil
		}
		buffer := l.shared.Buffer(l.rank, a.chunk)
		for i := range s.parts {
			from := s.starts[i]
			if err := l.inspectRange(i, s.parts[i].In, 0, len(s.parts[i].In)); err != nil {
				return false, err
			}
			s.copyIn(buffer[from:], i, from, from+s.parts[i].Bytes)
		}
		l.publish(transport.In, a.chunk+1)
		a.entered = true
	}
	if !l.allPast(transport.In, a.chunk+1) {
		return false, nil
	}
	a.reduce()
	l.publish(transport.Out, a.chunk+1)
	l.end()
	return true, nil
}

func (a *allreduceSharedFlat) reduce() {
	l, s := a.lane, &a.todo
	n := s.length()
	for m := range l.srcs {
		l.srcs[m] = l.shared.Buffer(m, a.chunk)[:n]
	}
	if len(s.parts) == 1 && s.direct(0) {
		reduce.Reduce(s.dt, s.op, s.parts[0].Out, l.srcs, s.postscale)
		return
	}
	sum := l.temporary(n)
	reduce.Reduce(s.dt, s.op, sum, l.srcs, s.postscale)
	for i := range s.parts {
		from := s.starts[i]
		s.copyOut(sum[from:], i, from, from+s.parts[i].Bytes)
	}
}
