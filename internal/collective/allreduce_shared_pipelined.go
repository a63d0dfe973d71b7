package collective

import (
	"github.com/gorovod/gorovod/internal/reduce"
	"github.com/gorovod/gorovod/internal/transport"
)

// allreduceSharedPipelined is the allreduce of large data in shared memory:
// reduce-scatter and allgather in one pass, chunk by chunk. Each chunk is dealt
// out in shares, one a member, which stand at the same place in the chunk and
// in every buffer:
//
//	in   copy the others' shares of this member's input into its own buffer
//	mid  reduce this member's share from all inputs, in the order of the ranks,
//	     to the output, and copy that into its own buffer
//	out  copy the others' shares from their buffers to the output
//
// The three run as far ahead of one another as the counters and Depth allow, so
// that no member waits while another one is a chunk behind.
//
// Steps: two synchronisations a chunk, overlapped between chunks. Bytes beyond
// the cache: each member reads n and writes n; for two members 4n together. In
// the cache, each copies n(size-1)/size twice and reduces n/size from size
// inputs. Chosen for all that is too large for the flat one.
type allreduceSharedPipelined struct {
	lane       *Lane
	todo       reduction
	base       uint64 // number of the first chunk
	chunkBytes int    // of the tensor in each chunk but the last
	chunks     int

	kin, kmid, kout int // chunks that this member has finished with each step
}

func (a *allreduceSharedPipelined) start(l *Lane, r reduction) Op {
	n := len(r.in)
	chunkBytes := pipelineChunk(n, l.size, min(l.shared.ChunkBytes(), l.chunkLimit))
	chunks := ceilDiv(n, chunkBytes)
	*a = allreduceSharedPipelined{lane: l, todo: r, base: l.chunks(chunks), chunkBytes: chunkBytes, chunks: chunks}
	return a
}

// pipelineChunk cuts n bytes into chunks of equal length, as few as fit into
// buffers of limit bytes.
func pipelineChunk(n, size, limit int) int {
	return alignUp(ceilDiv(n, ceilDiv(n, limit)), lineBytes*size)
}

func (a *allreduceSharedPipelined) Advance() (bool, error) {
	l := a.lane
	for a.kout < a.chunks {
		switch {
		case a.kout < a.kmid && l.reached(transport.Mid, a.base+uint64(a.kout)+1):
			a.copyOut(a.kout)
			a.kout++
			l.publish(transport.Out, a.base+uint64(a.kout))
		case a.kmid < a.kin && l.reached(transport.In, a.base+uint64(a.kmid)+1):
			a.reduceShare(a.kmid)
			a.kmid++
			l.publish(transport.Mid, a.base+uint64(a.kmid))
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

// chunk is the range of the tensor's bytes that chunk k holds.
func (a *allreduceSharedPipelined) chunk(k int) (lo, hi int) {
	lo = k * a.chunkBytes
	return lo, min(lo+a.chunkBytes, len(a.todo.in))
}

func (a *allreduceSharedPipelined) copyIn(k int) {
	l := a.lane
	lo, hi := a.chunk(k)
	in, buffer := a.todo.in[lo:hi], l.shared.Buffer(l.rank, a.base+uint64(k))
	from, to := share(len(in), l.size, l.rank)
	copy(buffer, in[:from])
	copy(buffer[to:], in[to:])
}

// blockBytes is how much of a share is reduced before it is copied: few enough
// bytes to be still in the first-level cache.
const blockBytes = 16 << 10

func (a *allreduceSharedPipelined) reduceShare(k int) {
	l := a.lane
	lo, hi := a.chunk(k)
	from, to := share(hi-lo, l.size, l.rank)
	for ; from < to; from += blockBytes {
		end := min(from+blockBytes, to)
		for m := range l.srcs {
			l.srcs[m] = l.shared.Buffer(m, a.base+uint64(k))[from:end]
		}
		own := l.srcs[l.rank] // nobody puts anything there but its result
		l.srcs[l.rank] = a.todo.in[lo+from : lo+end]
		out := a.todo.out[lo+from : lo+end]
		reduce.Reduce(a.todo.dt, a.todo.op, out, l.srcs, a.todo.scale)
		copy(own, out)
	}
}

func (a *allreduceSharedPipelined) copyOut(k int) {
	l := a.lane
	lo, hi := a.chunk(k)
	out := a.todo.out[lo:hi]
	for m := range l.size {
		if m != l.rank {
			from, to := share(len(out), l.size, m)
			copy(out[from:to], l.shared.Buffer(m, a.base+uint64(k))[from:to])
		}
	}
}
