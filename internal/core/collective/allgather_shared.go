package collective

import (
	"sync"

	"github.com/gorovod/gorovod/internal/base/cachesize"
	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// allgatherShared is the allgather in shared memory, of one part or of several: see dealt. Chunk k holds the same range
// of each member's region. The longest region decides how many chunks there are. A member with nothing left takes part
// with empty chunks. The parts are read and written where they are.
//
// Steps: one synchronisation a chunk, overlapped between chunks. Bytes: each
// member copies its region into shared memory and all regions out of it.
// Chosen over Shared, unless the members copy one another's memory.
type allgatherShared struct {
	lane      *Lane
	todo      layout // of pieces
	count     int    // of parts
	base      uint64
	width     int // of a chunk
	chunks    int
	passes    bool // outputs are written past the caches
	kin, kout int  // chunks that this member has finished with each step
	pin       int  // the first piece that may reach into the next chunk to copy in
}

// start reads the regions from l.offsets.
func (a *allgatherShared) start(l *Lane, todo layout) Op {
	longest := 0
	for m := range l.size {
		longest = max(longest, l.offsets[m+1]-l.offsets[m])
	}
	count := len(todo.parts) / l.size
	*a = allgatherShared{lane: l, todo: todo, count: count, pin: l.rank * count}
	a.width = min(l.shared.ChunkBytes(), max(leastGathered, l.chunkLimit/l.size/lineBytes*lineBytes))
	a.chunks = ceilDiv(longest, a.width)
	a.base = l.chunks(a.chunks)
	a.passes = todo.length() > lastCache()/l.size
	for m := range l.size {
		l.cursors[m] = m * count
	}
	for i := range count {
		l.sent[feed.ByMemory] += uint64(todo.parts[a.pin+i].Bytes)
	}
	return a
}

// lastCache is the size of the last cache. If it cannot hold the outputs of all members, they are written past the
// caches: a plain store would first read the line that it overwrites. The members of an allreduce in place have read
// these lines just before.
var lastCache = sync.OnceValue(cachesize.Last)

// leastGathered is the least that a chunk holds of a region, in bytes, if a staging buffer is as large. So the copies
// of a chunk cost more than its synchronisation.
const leastGathered = 64 << 10

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

// chunk is the range of the layout that chunk k holds of member m's region.
func (a *allgatherShared) chunk(m, k int) (lo, hi int) {
	begin, end := a.lane.offsets[m], a.lane.offsets[m+1]
	lo = min(begin+k*a.width, end)
	return lo, min(lo+a.width, end)
}

func (a *allgatherShared) copyIn(k int) {
	l, t := a.lane, &a.todo
	buffer := l.shared.Buffer(l.rank, a.base+uint64(k))
	lo, hi := a.chunk(l.rank, k)
	a.pin = t.first(a.pin, lo)
	for i := a.pin; i < (l.rank+1)*a.count && t.starts[i] < hi; i++ {
		b, e := t.within(i, lo, hi)
		t.deliverIn(l.delivery.streamed, buffer[b-lo:], i, b, e)
		if t.parts[i].Out != nil {
			copyTo(t.out(i, b, e), t.in(i, b, e))
		}
	}
}

func (a *allgatherShared) copyOut(k int) {
	l, t := a.lane, &a.todo
	for m := range l.size {
		if m == l.rank {
			continue
		}
		buffer := l.shared.Buffer(m, a.base+uint64(k))
		lo, hi := a.chunk(m, k)
		i := t.first(l.cursors[m], lo)
		l.cursors[m] = i
		for ; i < (m+1)*a.count && t.starts[i] < hi; i++ {
			b, e := t.within(i, lo, hi)
			if a.passes && t.parts[i].Out != nil {
				reduce.Stream(t.out(i, b, e), buffer[b-lo:e-lo])
				continue
			}
			t.copyOut(buffer[b-lo:e-lo], i, b, e)
		}
	}
}
