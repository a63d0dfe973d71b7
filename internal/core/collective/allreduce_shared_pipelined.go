package collective

import (
	"github.com/gorovod/gorovod/internal/observe/feed"
	"iter"
	"time"

	"github.com/gorovod/gorovod/internal/core/transport"
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
// The parts are read and written where they are. If a part is not direct, this member's share of it also passes through
// its own buffer.
//
// The three steps run as far ahead of one another as the counters and Depth allow, so no member waits for a member that
// is a chunk behind. delivery decides whether data for other members is written into the caches or past them.
//
// Steps: two synchronisations a chunk, overlapped between chunks. Bytes beyond
// the cache: each member reads n and writes n; for two members 4n together. In
// the cache, each copies n(size-1)/size twice and reduces n/size from size
// inputs. Chosen for all data that is too large for allreduceSharedFlat.
type allreduceSharedPipelined struct {
	lane       *Lane
	todo       layout
	base       uint64 // number of the first chunk
	chunkBytes int    // of the layout in each chunk but the last
	chunks     int

	kin, kmid, kout int // chunks that this member has finished with each step
	pin, pmid, pout int // the first part that may reach into the next chunk of each step

	class    int       // of delivery
	number   uint64    // of the first chunk in its class
	streamed bool      // how the current step delivers
	began    time.Time // when the current step did, if it is timed
}

func (a *allreduceSharedPipelined) start(l *Lane, s layout) Op {
	n := s.length()
	l.sent[feed.ByMemory] += uint64(s.bytes) // the others' shares of the input, and this member's share of the result
	chunkBytes := pipelineChunk(n, l.size, min(l.shared.ChunkBytes(), l.chunkLimit))
	chunks := ceilDiv(n, chunkBytes)
	*a = allreduceSharedPipelined{lane: l, todo: s, base: l.chunks(chunks), chunkBytes: chunkBytes, chunks: chunks,
		class: deliveryClass(n)}
	trial := &l.delivery.trials[a.class]
	a.number = trial.chunks
	trial.chunks += uint64(chunks)
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
		case a.kout < a.kmid && l.allPast(transport.Mid, a.base+uint64(a.kout)+1):
			a.begin(a.kout)
			a.copyOut(a.kout)
			a.end(a.kout, transport.Out)
			a.kout++
			l.publish(transport.Out, a.base+uint64(a.kout))
		case a.kmid < a.kin && l.allPast(transport.In, a.base+uint64(a.kmid)+1):
			a.begin(a.kmid)
			if err := a.reduceShare(a.kmid); err != nil {
				return false, err
			}
			a.end(a.kmid, transport.Mid)
			a.kmid++
			l.publish(transport.Mid, a.base+uint64(a.kmid))
		case a.kin < a.chunks && l.free(a.base+uint64(a.kin)):
			a.begin(a.kin)
			if err := a.copyIn(a.kin); err != nil {
				return false, err
			}
			a.end(a.kin, transport.In)
			a.kin++
			l.publish(transport.In, a.base+uint64(a.kin))
		default:
			return false, nil
		}
	}
	l.end()
	return true, nil
}

// begin sets how the next step of chunk k delivers, and reads the clock if the step is timed.
func (a *allreduceSharedPipelined) begin(k int) {
	var timed bool
	a.began = time.Time{}
	if a.streamed, timed = a.lane.delivery.trial(a.number + uint64(k)); timed {
		a.began = time.Now()
	}
}

// end tells the trial how long the step has taken, if it was timed.
func (a *allreduceSharedPipelined) end(k int, p transport.Phase) {
	if !a.began.IsZero() {
		lo, hi, _, _ := a.chunk(k)
		a.lane.delivery.took(a.class, a.number+uint64(k), p, hi-lo, time.Since(a.began))
	}
}

// chunk is the range of the layout that chunk k holds, and this member's share of that range.
func (a *allreduceSharedPipelined) chunk(k int) (lo, hi, from, to int) {
	lo = k * a.chunkBytes
	hi = min(lo+a.chunkBytes, a.todo.length())
	from, to = share(hi-lo, a.lane.size, a.lane.rank)
	return lo, hi, lo + from, lo + to
}

func (a *allreduceSharedPipelined) copyIn(k int) error {
	l, s := a.lane, &a.todo
	lo, hi, from, to := a.chunk(k)
	buffer := l.shared.Buffer(l.rank, a.base+uint64(k))
	a.pin = s.first(a.pin, lo)
	for i := a.pin; i < len(s.parts) && s.starts[i] < hi; i++ {
		if !s.direct(i) {
			if err := a.bring(buffer, i, lo, lo, hi); err != nil {
				return err
			}
			continue
		}
		if err := a.bring(buffer, i, lo, lo, from); err != nil {
			return err
		}
		if err := a.bring(buffer, i, lo, to, hi); err != nil {
			return err
		}
	}
	return nil
}

// bring copies this member's input of part i in [from, to) of the layout to the buffer of the chunk that starts at lo.
func (a *allreduceSharedPipelined) bring(buffer []byte, i, lo, from, to int) error {
	s := &a.todo
	b, e := s.within(i, from, to)
	if a.lane.inspect == nil || s.parts[i].In == nil {
		s.deliverIn(a.streamed, buffer[b-lo:], i, b, e)
		return nil
	}
	for ; b < e; b += inspectBytes {
		end := min(b+inspectBytes, e)
		if !a.lane.inspect.Sound(s.in(i, b, end)) {
			if err := a.lane.inspect.Unsound(i, a.unseen(i, 0)); err != nil {
				return err
			}
		}
		s.deliverIn(a.streamed, buffer[b-lo:], i, b, end)
	}
	return nil
}

// unseen is what is left of part i's input to inspect, and more that has been found sound, but nothing that may have
// been overwritten by results. at is where the layout's next block to reduce starts, or lower.
func (a *allreduceSharedPipelined) unseen(i, at int) iter.Seq2[int, []byte] {
	s := &a.todo
	return func(yield func(int, []byte) bool) {
		for k := a.kmid; k < a.chunks; k++ {
			lo, hi, from, to := a.chunk(k)
			if k >= a.kin {
				from, to = lo, hi
			} else if !s.direct(i) {
				continue
			}
			b, e := s.within(i, max(from, at), to)
			if b < e && !yield(b-s.starts[i], s.in(i, b, e)) {
				return
			}
		}
	}
}

// blockBytes is how much of a share is reduced before it is copied. It fits into the first-level cache.
const blockBytes = 16 << 10

func (a *allreduceSharedPipelined) reduceShare(k int) error {
	s := &a.todo
	lo, _, from, to := a.chunk(k)
	a.pmid = s.first(a.pmid, lo)
	for i := s.first(a.pmid, from); i < len(s.parts) && s.starts[i] < to; {
		if s.direct(i) {
			b, e := s.within(i, from, to)
			if err := a.reducePart(k, lo, i, b, e); err != nil {
				return err
			}
			i++
			continue
		}
		// As many as stand side by side make one block.
		first := i
		b, e := s.within(i, from, to)
		for i++; i < len(s.parts) && s.starts[i] < to && !s.direct(i) && e-b < blockBytes; i++ {
			_, e = s.within(i, from, to)
		}
		s.reduceStaged(a.sources(k, b-lo, e-lo), a.lane.rank, first, i, b, e)
	}
	return nil
}

// sources makes l.srcs the members' buffers of chunk k between from and to.
func (a *allreduceSharedPipelined) sources(k, from, to int) [][]byte {
	l := a.lane
	for m := range l.srcs {
		l.srcs[m] = l.shared.Buffer(m, a.base+uint64(k))[from:to]
	}
	return l.srcs
}

// reducePart reduces the range [from, to) of the layout, which is within the
// direct part i and in chunk k, which starts at lo.
func (a *allreduceSharedPipelined) reducePart(k, lo, i, from, to int) error {
	s, rank, inspect := &a.todo, a.lane.rank, a.lane.inspect
	for ; from < to; from += blockBytes {
		end := min(from+blockBytes, to)
		if inspect != nil && !inspect.Sound(s.in(i, from, end)) {
			if err := inspect.Unsound(i, a.unseen(i, from)); err != nil {
				return err
			}
		}
		srcs := a.sources(k, from-lo, end-lo)
		own := srcs[rank] // only the result goes there
		s.reduceDirect(srcs, rank, i, from, end)
		deliver(a.streamed, own, s.out(i, from, end))
	}
	return nil
}

func (a *allreduceSharedPipelined) copyOut(k int) {
	l, s := a.lane, &a.todo
	lo, hi, _, _ := a.chunk(k)
	a.pout = s.first(a.pout, lo)
	for m := range l.size {
		if m == l.rank {
			continue
		}
		from, to := share(hi-lo, l.size, m)
		buffer := l.shared.Buffer(m, a.base+uint64(k))
		for i := s.first(a.pout, lo+from); i < len(s.parts) && s.starts[i] < lo+to; i++ {
			b, e := s.within(i, lo+from, lo+to)
			s.copyOut(buffer[b-lo:e-lo], i, b, e)
		}
	}
}
