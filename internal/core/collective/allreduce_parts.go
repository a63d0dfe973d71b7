package collective

import (
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// Part is one of the tensors of an operation that several share.
type Part struct {
	// In and Out are the same memory or do not overlap. They overlap no memory of another part. A member without the
	// tensor has neither, and takes part with zeros.
	//
	// In a reducescatter Out is shorter, and may be this member's share of In. In an allgather In is shorter, and may
	// be this member's share of Out. In both a member without Out drops the result.
	In, Out []byte
	// Bytes is the length of In and, but for a reducescatter and an allgather, of Out: the same on all members, but for
	// an allgather.
	Bytes int
}

// AllreduceParts makes, for each part, Out = postscale × (the members' prescale × In, combined elementwise by op): with
// the bits of reduce.Scale and Allreduce on each part alone. The parts' number, order and lengths are the same on all
// members. parts belongs to the operation until it has ended. Arguments that reduce.Check and reduce.CheckScale refuse
// are an error.
func (l *Lane) AllreduceParts(dt tensor.DType, op tensor.ReduceOp, parts []Part, prescale, postscale float64) Op {
	if err := checkReduction(dt, op, prescale, postscale); err != nil {
		return l.refuse("allreduce: %w", err)
	}
	for i, p := range parts {
		switch {
		case p.Bytes < 0 || p.Bytes%dt.Size() != 0:
			return l.refuse("allreduce: part %d: %d bytes are not whole elements of %v", i, p.Bytes, dt)
		case len(p.In) != p.Bytes && (p.In != nil || p.Out != nil):
			return l.refuse("allreduce: part %d: input of %d bytes, expected %d", i, len(p.In), p.Bytes)
		case len(p.Out) != p.Bytes && (p.In != nil || p.Out != nil):
			return l.refuse("allreduce: part %d: output of %d bytes, expected %d", i, len(p.Out), p.Bytes)
		}
	}
	return l.startParts(l.layout(dt, op, parts, prescale, postscale))
}

func checkReduction(dt tensor.DType, op tensor.ReduceOp, prescale, postscale float64) error {
	if err := reduce.Check(dt, op); err != nil {
		return err
	}
	if err := reduce.CheckScale(dt, prescale); err != nil {
		return err
	}
	return reduce.CheckScale(dt, postscale)
}

// startParts chooses among the allreduces of a lane without Comm.
func (l *Lane) startParts(s layout) Op {
	switch n := s.length(); {
	case n == 0:
		return l.done()
	case l.size == 1:
		l.begin()
		return l.allreduceLocal.start(l, s)
	case n <= flatBytes/l.size && n <= l.shared.ChunkBytes():
		l.begin()
		return l.allreduceFlat.start(l, s)
	case l.maySingleCopy(n, len(s.parts)) && l.copyTrial.asks(n):
		l.begin()
		return l.allreduceSingle.start(l, s)
	default:
		l.begin()
		return l.allreducePipelined.start(l, s)
	}
}

const (
	// lineUpBytes is the least length of a part that starts on a cache line of its own in the layout. Smaller parts
	// stand close together.
	lineUpBytes = 4 << 10
	// directBytes is the least length of a part that is reduced from its own memory to its own memory. Smaller parts
	// are reduced many at a time in the staging buffer, because a call for each would cost more than the copies.
	directBytes = 2 << 10
)

// layout is a reduction of parts, laid out side by side: part i has the bytes
// from starts[i] to starts[i]+parts[i].Bytes of the layout. There may be gaps of
// less than a line, with nothing in them. The layout is the same on all members.
type layout struct {
	dt                  tensor.DType
	op                  tensor.ReduceOp
	prescale, postscale float64
	parts               []Part
	starts              []int // one more than parts
	bytes               int   // of all parts, without the gaps
}

// layout lays parts out. The lists are in the lane's memory.
func (l *Lane) layout(dt tensor.DType, op tensor.ReduceOp, parts []Part, prescale, postscale float64) layout {
	starts := l.starts[:0]
	at, bytes := 0, 0
	for i := range parts {
		n := parts[i].Bytes
		bytes += n
		if n >= lineUpBytes {
			at = alignUp(at, lineBytes)
		}
		starts = append(starts, at)
		at += n
	}
	l.starts = append(starts, at)
	return layout{dt, op, prescale, postscale, parts, l.starts, bytes}
}

// whole is a layout of one part.
func (l *Lane) whole(r reduction) layout {
	l.one[0] = Part{In: r.in, Out: r.out, Bytes: len(r.in)}
	return l.layout(r.dt, r.op, l.one[:], 1, r.scale)
}

func (s *layout) length() int { return s.starts[len(s.parts)] }

// first is the first part that ends behind lo. The search begins at i, which is not behind it.
func (s *layout) first(i, lo int) int {
	for i < len(s.parts) && s.starts[i]+s.parts[i].Bytes <= lo {
		i++
	}
	return i
}

// within is the range of the layout that both part i and [lo, hi) cover.
func (s *layout) within(i, lo, hi int) (from, to int) {
	from = max(s.starts[i], lo)
	return from, max(from, min(s.starts[i]+s.parts[i].Bytes, hi))
}

// direct reports that part i is reduced from its own memory to its own memory.
func (s *layout) direct(i int) bool {
	p := &s.parts[i]
	return p.In != nil && p.Out != nil && (p.Bytes >= directBytes || len(s.parts) == 1)
}

// in and out are the range [from, to) of the layout, which is within part i.
func (s *layout) in(i, from, to int) []byte { return s.parts[i].In[from-s.starts[i] : to-s.starts[i]] }
func (s *layout) out(i, from, to int) []byte {
	return s.parts[i].Out[from-s.starts[i] : to-s.starts[i]]
}

// copyIn fills dst with this member's contribution to the range [from, to) of the layout, which is within part i or
// empty.
func (s *layout) copyIn(dst []byte, i, from, to int) { s.deliverIn(false, dst, i, from, to) }

// deliverIn is copyIn to memory that other members will read.
func (s *layout) deliverIn(streamed bool, dst []byte, i, from, to int) {
	switch dst = dst[:to-from]; {
	case from == to: // perhaps not in the part
	case s.parts[i].In == nil:
		clear(dst)
	case s.prescale != 1:
		reduce.Scale(s.dt, dst, s.in(i, from, to), s.prescale)
	default:
		deliver(streamed, dst, s.in(i, from, to))
	}
}

// copyOut copies src, the result of the range [from, to) of the layout, to the output. The range is within part i.
func (s *layout) copyOut(src []byte, i, from, to int) {
	if s.parts[i].Out != nil {
		copy(s.out(i, from, to), src)
	}
}

// reduceDirect reduces the range [from, to) of the layout, which is within the direct part i, to the output. srcs are
// the members' inputs; that of member rank, this one, is not there.
func (s *layout) reduceDirect(srcs [][]byte, rank, i, from, to int) {
	out := s.out(i, from, to)
	if srcs[rank] = s.in(i, from, to); s.prescale != 1 {
		s.copyIn(out, i, from, to)
		srcs[rank] = out
	}
	reduce.Reduce(s.dt, s.op, out, srcs, s.postscale)
}

// reduceStaged reduces the range [from, to) of the layout, which belongs to the parts from first to end-1, in the
// memory of srcs[rank], and copies the results to the outputs.
func (s *layout) reduceStaged(srcs [][]byte, rank, first, end, from, to int) {
	own := srcs[rank]
	reduce.Reduce(s.dt, s.op, own, srcs, s.postscale)
	for i := first; i < end; i++ {
		b, e := s.within(i, from, to)
		s.copyOut(own[b-from:e-from], i, b, e)
	}
}
