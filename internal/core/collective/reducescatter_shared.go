package collective

import (
	"github.com/gorovod/gorovod/internal/core/reduce"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// reducescatterShared is the reducescatter in shared memory. Every member's part is cut into the same number of slices,
// of equal length within the part; chunk k holds slice k of every part, side by side. So all members reduce at the same
// time, however unequal their parts are:
//
//	in   copy the others' slices of this member's input into its own buffer
//	out  reduce this member's slice from all inputs, in the order of the ranks,
//	     to the output
//
// Steps: one synchronisation a chunk, overlapped between chunks. Bytes: each
// member copies n less its own part, and reduces its part from size inputs.
// Always chosen over Shared.
type reducescatterShared struct {
	lane      *Lane
	todo      reduction
	base      uint64 // number of the first chunk
	chunks    int
	place     int // the place of this member's slices in each buffer
	kin, kout int // chunks that this member has finished with each step
}

// start reads the parts from l.offsets.
func (s *reducescatterShared) start(l *Lane, todo reduction) Op {
	chunks := l.slices(l.shared.ChunkBytes())
	l.sent[feed.ByMemory] += uint64(len(todo.in) - (l.offsets[l.rank+1] - l.offsets[l.rank]))
	*s = reducescatterShared{lane: l, todo: todo, base: l.chunks(chunks), chunks: chunks}
	for m := range l.rank {
		s.place += s.width(m)
	}
	return s
}

// slices is the least number of slices per part with which one slice of each part fits into limit bytes.
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

// slice is the range of the bytes of member m's part that chunk k holds.
func (s *reducescatterShared) slice(m, k int) (lo, hi int) {
	length, width := s.lane.offsets[m+1]-s.lane.offsets[m], s.width(m)
	lo = min(k*width, length)
	return lo, min(lo+width, length)
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
		if l.inspect != nil && !l.inspect.Sound(s.todo.in[l.offsets[m]:][lo:hi]) {
			whole := func(yield func(int, []byte) bool) { yield(0, s.todo.in) } // which this operation only reads
			if err := l.inspect.Unsound(0, whole); err != nil {
				return err
			}
		}
		if m != l.rank {
			deliver(l.delivery.streamed, buffer, s.todo.in[l.offsets[m]:][lo:hi])
		}
		buffer = buffer[s.width(m):]
	}
	return nil
}

func (s *reducescatterShared) reduceSlice(k int) {
	l := s.lane
	lo, hi := s.slice(l.rank, k)
	for m := range l.srcs {
		if m == l.rank {
			l.srcs[m] = s.todo.in[l.offsets[m]:][lo:hi]
		} else {
			l.srcs[m] = l.shared.Buffer(m, s.base+uint64(k))[s.place:][:hi-lo]
		}
	}
	reduce.Reduce(s.todo.dt, s.todo.op, s.todo.out[lo:hi], l.srcs, s.todo.scale)
}
