package collective

import (
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// allgatherShared is the allgather in shared memory. Chunk k holds the bytes [k×ChunkBytes, (k+1)×ChunkBytes) of each
// member's contribution. The longest contribution decides how many chunks there are. A member with nothing left takes
// part with empty chunks.
//
// Steps: one synchronisation a chunk, overlapped between chunks. Bytes: each
// member copies its contribution into shared memory and all contributions out
// of it. Always chosen over Shared.
type allgatherShared struct {
	lane      *Lane
	in, out   []byte
	base      uint64
	chunks    int
	kin, kout int // chunks that this member has finished with each step
}

// start reads the contributions' places from l.offsets.
func (a *allgatherShared) start(l *Lane, in, out []byte) Op {
	longest := 0
	for m := range l.size {
		longest = max(longest, l.offsets[m+1]-l.offsets[m])
	}
	chunks := ceilDiv(longest, l.shared.ChunkBytes())
	l.sent[feed.ByMemory] += uint64(len(in))
	*a = allgatherShared{lane: l, in: in, out: out, base: l.chunks(chunks), chunks: chunks}
	return a
}

func (a *allgatherShared) Advance() (bool, error) {
	l := a.lane
	for a.kout < a.chunks {
		switch {
		case a.kout < a.kin && l.allPast(transport.In, a.base+uint64(a.kout)+1):
			a.copyOut(a.kout)
			a.kout++
			l.publish(transport.Out, a.base+uint64(a.kout))
		case a.kin < a.chunks && l.free(a.base+uint64(a.kin)):
			a.copyIn(a.kin)
			a.kin++
			l.publish(transport.In, a.base+uint64(a.kin))
		default:
			return false, nil
		}
	}
	l.end()
	return true, nil
}

// chunk is the range of a contribution of length bytes that chunk k holds.
func (a *allgatherShared) chunk(k, length int) (lo, hi int) {
	size := a.lane.shared.ChunkBytes()
	lo = min(k*size, length)
	return lo, min(lo+size, length)
}

func (a *allgatherShared) copyIn(k int) {
	l := a.lane
	lo, hi := a.chunk(k, len(a.in))
	deliver(l.delivery.streamed, l.shared.Buffer(l.rank, a.base+uint64(k)), a.in[lo:hi])
	copyTo(a.out[l.offsets[l.rank]:][lo:hi], a.in[lo:hi])
}

func (a *allgatherShared) copyOut(k int) {
	l := a.lane
	for m := range l.size {
		if m != l.rank {
			lo, hi := a.chunk(k, l.offsets[m+1]-l.offsets[m])
			copy(a.out[l.offsets[m]:][lo:hi], l.shared.Buffer(m, a.base+uint64(k)))
		}
	}
}
