package collective

import (
	"iter"

	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// reducescatterShared is the reducescatter in shared memory, of one part or of several: see dealt. Every member's
// region is cut into the same number of slices, of equal length within the region; chunk k holds slice k of every
// region, side by side. So all members reduce at the same time, however unequal their shares are:
//
//	in   copy the others' slices of this member's input into its own buffer
//	out  reduce this member's slice from all inputs, in the order of the ranks,
//	     to the output
//
// The parts are read and written where they are. Small pieces of this member's slice also pass through its own buffer,
// and are reduced many at a time there.
//
// Steps: one synchronisation a chunk, overlapped between chunks. Bytes: each
// member copies n less its own region, and reduces its region from size inputs.
// Chosen over Shared, unless the members copy one another's memory.
type reducescatterShared struct {
	lane      *Lane
	todo      layout // of pieces
	count     int    // of parts
	base      uint64 // number of the first chunk
	chunks    int
	place     int // the place of this member's slices in each buffer
	kin, kout int // chunks that this member has finished with each step
	pout      int // the first piece that may reach into the next slice to reduce
}

// start reads the regions from l.offsets.
func (s *reducescatterShared) start(l *Lane, todo layout) Op {
	chunks := l.slices(min(l.shared.ChunkBytes(), l.chunkLimit))
	l.sent[feed.ByMemory] += uint64(todo.bytes)
	*s = reducescatterShared{lane: l, todo: todo, count: len(todo.parts) / l.size, base: l.chunks(chunks),
		chunks: chunks}
	for m := range l.size {
		if m < l.rank {
			s.place += s.width(m)
		}
		l.cursors[m] = m * s.count
	}
	s.pout = l.cursors[l.rank]
	for i := range s.count {
		l.sent[feed.ByMemory] -= uint64(todo.parts[s.pout+i].Bytes)
	}
	return s
}

// slices is the least number of slices per region with which one slice of each region fits into limit bytes.
func (l *Lane) slices(limit int) int {
	// This many suffice: then each slice is one line at most, and a buffer has a line for each member.
	enough := 1
	for m := range l.size {
		enough = max(enough, ceilDiv(l.offsets[m+1]-l.offsets[m], lineBytes))
	}
	few := max(1, ceilDiv(l.offsets[l.size], limit))
	for few < enough {
		middle := few + (enough-few)/2
		total := 0
		for m := range l.size {
			total += sliceWidth(l.offsets[m+1]-l.offsets[m], middle)
		}
		if total <= limit {
			enough = middle
		} else {
			few = middle + 1
		}
	}
	return enough
}

// sliceWidth is the length of all but the last of the slices that make length
// bytes: whole lines.
func sliceWidth(length, slices int) int { return alignUp(ceilDiv(length, slices), lineBytes) }

func (s *reducescatterShared) width(m int) int {
	return sliceWidth(s.lane.offsets[m+1]-s.lane.offsets[m], s.chunks)
}

// slice is the range of the layout that chunk k holds of member m's region.
func (s *reducescatterShared) slice(m, k int) (lo, hi int) {
	begin, end := s.lane.offsets[m], s.lane.offsets[m+1]
	lo = min(begin+k*s.width(m), end)
	return lo, min(lo+s.width(m), end)
}

func (s *reducescatterShared) Advance() (bool, error) {
	l := s.lane
	for s.kout < s.chunks {
		switch {
		case s.kout < s.kin && l.allPast(transport.In, s.base+uint64(s.kout)+1):
			s.reduceSlice(s.kout)
			s.kout++
			l.publish(transport.Out, s.base+uint64(s.kout))
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

func (s *reducescatterShared) copyIn(k int) error {
	l := s.lane
	buffer := l.shared.Buffer(l.rank, s.base+uint64(k))
	for m := range l.size {
		lo, hi := s.slice(m, k)
		i := s.todo.first(l.cursors[m], lo)
		l.cursors[m] = i
		for end := (m + 1) * s.count; i < end && s.todo.starts[i] < hi; i++ {
			b, e := s.todo.within(i, lo, hi)
			if err := s.bring(buffer[b-lo:], m, i, b, e); err != nil {
				return err
			}
		}
		buffer = buffer[s.width(m):]
	}
	return nil
}

// bring copies this member's input of [b, e), which is within piece i of member m's region, to the buffer, if it is to
// be read there.
func (s *reducescatterShared) bring(to []byte, m, i, b, e int) error {
	l, t := s.lane, &s.todo
	stays := m == l.rank && t.direct(i)
	if l.inspect == nil || t.parts[i].In == nil {
		if !stays {
			t.deliverIn(l.delivery.streamed, to, i, b, e)
		}
		return nil
	}
	for from := b; from < e; from += inspectBytes {
		end := min(from+inspectBytes, e)
		if !l.inspect.Sound(t.in(i, from, end)) {
			if err := l.inspect.Unsound(i%s.count, s.unseen(i%s.count)); err != nil {
				return err
			}
		}
		if !stays {
			t.deliverIn(l.delivery.streamed, to[from-b:], i, from, end)
		}
	}
	return nil
}

// unseen is a part's input without what this member has reduced, whose memory may have results: that has been seen.
func (s *reducescatterShared) unseen(part int) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		at := 0
		for m := range s.lane.size {
			i := m*s.count + part
			b, e := s.todo.starts[i], s.todo.starts[i]+s.todo.parts[i].Bytes
			from := b
			if m == s.lane.rank {
				lo, _ := s.slice(m, s.kout)
				from = min(max(b, lo), e)
			}
			if from < e && !yield(at+from-b, s.todo.in(i, from, e)) {
				return
			}
			at += e - b
		}
	}
}

// reduceSlice reduces this member's slice of chunk k.
func (s *reducescatterShared) reduceSlice(k int) {
	l, t := s.lane, &s.todo
	lo, hi := s.slice(l.rank, k)
	s.pout = t.first(s.pout, lo)
	for i, last := s.pout, (l.rank+1)*s.count; i < last && t.starts[i] < hi; {
		first := i
		b, e := t.within(i, lo, hi)
		if i++; t.direct(first) {
			t.reduceDirect(s.sources(k, b-lo, e-lo), l.rank, first, b, e)
			continue
		}
		// As many as stand side by side make one block.
		for ; i < last && t.starts[i] < hi && !t.direct(i) && e-b < blockBytes; i++ {
			_, e = t.within(i, lo, hi)
		}
		t.reduceStaged(s.sources(k, b-lo, e-lo), l.rank, first, i, b, e)
	}
}

// sources makes l.srcs the members' inputs of the range [from, to) of this member's slice, in their buffers.
func (s *reducescatterShared) sources(k, from, to int) [][]byte {
	l := s.lane
	for m := range l.srcs {
		l.srcs[m] = l.shared.Buffer(m, s.base+uint64(k))[s.place:][from:to]
	}
	return l.srcs
}
