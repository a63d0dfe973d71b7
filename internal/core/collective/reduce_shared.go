package collective

import (
	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// reduceShared is the reduction to one member in shared memory, chunk by chunk. Each chunk is dealt out in shares, as
// in allreduceSharedPipelined, which stand at the same place in the chunk and in every buffer:
//
//	in   copy the others' shares of this member's input into its own buffer
//	mid  reduce this member's share from all inputs, in the order of the ranks, into its own buffer; the root reduces
//	     to its output
//	out  the root copies the others' shares from their buffers to its output; the others have nothing to do
//
// If there is little data, the root's share is all of it. So the root waits once, and the others do not wait.
//
// Steps: two synchronisations a chunk, overlapped between chunks; one for little data. Bytes: each member copies
// n(size-1)/size and reduces n/size from size inputs, and the root copies n(size-1)/size more; for little data each
// copies n, and the root reduces n from size inputs. Always chosen over Shared. The limit for little data is that of
// allreduceSharedFlat.
type reduceShared struct {
	lane       *Lane
	todo       reduction
	root       int
	alone      bool // the root reduces everything
	base       uint64
	chunkBytes int
	chunks     int

	kin, kmid, kout int // chunks that this member has finished with each step
}

func (s *reduceShared) start(l *Lane, todo reduction, root int) Op {
	n := len(todo.in)
	chunkBytes := pipelineChunk(n, l.size, min(l.shared.ChunkBytes(), l.chunkLimit))
	chunks := ceilDiv(n, chunkBytes)
	alone := n <= flatBytes/l.size && chunks == 1
	*s = reduceShared{lane: l, todo: todo, root: root, alone: alone, base: l.chunks(chunks), chunkBytes: chunkBytes,
		chunks: chunks}
	return s
}

func (s *reduceShared) Advance() (bool, error) {
	l := s.lane
	for s.kout < s.chunks {
		switch {
		case s.kout < s.kmid && (l.rank != s.root || s.alone || l.allPast(transport.Mid, s.base+uint64(s.kout)+1)):
			if l.rank == s.root {
				s.copyOut(s.kout)
			}
			s.kout++
			l.publish(transport.Out, s.base+uint64(s.kout))
		case s.kmid < s.kin && s.ready(s.kmid):
			s.reduceShare(s.kmid)
			s.kmid++
			l.publish(transport.Mid, s.base+uint64(s.kmid))
		case s.kin < s.chunks && l.free(s.base+uint64(s.kin)):
			if err := s.copyIn(s.kin); err != nil {
				return false, err
			}
			s.kin++
			l.publish(transport.In, s.base+uint64(s.kin))
		default:
			return false, nil
		}
	}
	l.end()
	return true, nil
}

// ready reports that all members' inputs for this member's share of chunk k have come, or that the share is empty.
func (s *reduceShared) ready(k int) bool {
	_, _, from, to := s.chunk(k, s.lane.rank)
	return from == to || s.lane.allPast(transport.In, s.base+uint64(k)+1)
}

// chunk is the range of the input that chunk k holds, and member m's share of that range.
func (s *reduceShared) chunk(k, m int) (lo, hi, from, to int) {
	lo = k * s.chunkBytes
	hi = min(lo+s.chunkBytes, len(s.todo.in))
	switch {
	case !s.alone:
		from, to = share(hi-lo, s.lane.size, m)
	case m == s.root:
		from, to = 0, hi-lo
	}
	return lo, hi, lo + from, lo + to
}

func (s *reduceShared) copyIn(k int) error {
	l := s.lane
	lo, hi, from, to := s.chunk(k, l.rank)
	if err := l.inspectRange(0, s.todo.in, lo, hi); err != nil {
		return err
	}
	buffer := l.shared.Buffer(l.rank, s.base+uint64(k))
	l.sent[feed.ByMemory] += uint64(hi - lo)
	if l.rank == s.root {
		l.sent[feed.ByMemory] -= uint64(to - from) // of which the root keeps the result
	}
	deliver(l.delivery.streamed, buffer, s.todo.in[lo:from])
	deliver(l.delivery.streamed, buffer[to-lo:], s.todo.in[to:hi])
	return nil
}

func (s *reduceShared) reduceShare(k int) {
	l := s.lane
	lo, _, from, to := s.chunk(k, l.rank)
	if from == to {
		return
	}
	for m := range l.srcs {
		l.srcs[m] = l.shared.Buffer(m, s.base+uint64(k))[from-lo : to-lo]
	}
	out := l.srcs[l.rank]
	if l.rank == s.root {
		out = s.todo.out[from:to]
	}
	l.srcs[l.rank] = s.todo.in[from:to]
	reduce.Reduce(s.todo.dt, s.todo.op, out, l.srcs, s.todo.scale)
}

// copyOut copies the others' shares of chunk k to the output.
func (s *reduceShared) copyOut(k int) {
	l := s.lane
	for m := range l.size {
		if m != l.rank {
			lo, _, from, to := s.chunk(k, m)
			copy(s.todo.out[from:to], l.shared.Buffer(m, s.base+uint64(k))[from-lo:])
		}
	}
}
