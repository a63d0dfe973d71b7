package collective

import (
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// exchangeBytes is the most that a member may have to hold for the exchange form
// of a reducescatter over Comm.
const exchangeBytes = 256 << 10

// Reducescatter makes out = scale × (this member's part of the members' in, combined elementwise by op). counts holds
// the bytes of each member's part, in the order of the parts in in; it is the same on all members, and is not kept. in
// and out may not overlap. Arguments that reduce.Check and reduce.CheckScale refuse are an error.
//
// Over Shared the result has the bits of Allreduce's. Over Comm the algorithm decides the order; over hosts with
// equally many members it is Allreduce's inside each host. On a deterministic lane it is Allreduce's order.
func (l *Lane) Reducescatter(dt tensor.DType, op tensor.ReduceOp, in, out []byte, counts []int64, scale float64) Op {
	if err := checkReduction(dt, op, 1, scale); err != nil {
		return l.refuse("reducescatter: %w", err)
	}
	total, err := l.deal(l.offsets, counts)
	if err != nil {
		return l.refuse("reducescatter: %w", err)
	}
	longest := int64(0)
	for m, c := range counts {
		if c%int64(dt.Size()) != 0 {
			return l.refuse("reducescatter: %d bytes for member %d are not whole elements of %v", c, m, dt)
		}
		longest = max(longest, c)
	}
	switch {
	case len(in) != total:
		return l.refuse("reducescatter: input of %d bytes, expected %d", len(in), total)
	case int64(len(out)) != counts[l.rank]:
		return l.refuse("reducescatter: output of %d bytes, expected %d", len(out), counts[l.rank])
	case len(in) == 0:
		return l.done()
	}
	r := reduction{dt: dt, op: op, in: in, out: out, scale: scale}
	switch {
	case l.takesParts():
		return l.scatterPart(r, counts)
	case l.hier != nil && l.hier.equal() && l.options.Allreduce != Flat:
		l.begin()
		return l.reducescatterHierarchical.start(l, r)
	case l.hier != nil && l.options.Deterministic && l.options.Allreduce != Flat:
		l.begin()
		return l.reducescatterWhole.start(l, r)
	case l.options.Deterministic:
		l.begin()
		return l.allreduceDirect.start(l, r, nil, false)
	case longest <= int64(exchangeBytes/l.size):
		return l.reducescatterExchange.start(l, r, counts)
	default:
		l.begin()
		return l.reducescatterRing.start(l, r)
	}
}

// ReducescatterParts makes, for each part, Out = postscale × (this member's share of the members' prescale × In,
// combined elementwise by op), with the bits of Reducescatter on each part alone. counts has the bytes of each member's
// share of part 0, in the order of the members, then those of part 1, and so on. The parts' number, order and lengths,
// and counts, are the same on all members; counts is not kept. parts belongs to the operation until it has ended.
// Arguments that reduce.Check and reduce.CheckScale refuse are an error, and so is a lane over Comm.
func (l *Lane) ReducescatterParts(dt tensor.DType, op tensor.ReduceOp, parts []Part, counts []int64, prescale,
	postscale float64) Op {
	if err := checkReduction(dt, op, prescale, postscale); err != nil {
		return l.refuse("reducescatter: %w", err)
	}
	for i, c := range counts {
		if c%int64(dt.Size()) != 0 {
			return l.refuse("reducescatter: part %d: %d bytes for member %d are not whole elements of %v", i/l.size, c,
				i%l.size, dt)
		}
	}
	if !l.takesParts() {
		return l.refuse("reducescatter: parts over messages are not packed")
	}
	s, err := l.dealOut(dealt{parts: parts, counts: counts, scatters: true}, layout{dt: dt, op: op, prescale: prescale,
		postscale: postscale})
	if err != nil {
		return l.refuse("reducescatter: %w", err)
	}
	return l.startScatter(s, parts)
}

// scatterPart starts a reducescatter of one part, whose arguments have been checked. Unlike in Reducescatter, out may
// be this member's share of in.
func (l *Lane) scatterPart(r reduction, counts []int64) Op {
	l.one[0] = Part{In: r.in, Out: r.out, Bytes: len(r.in)}
	s, err := l.dealOut(dealt{parts: l.one[:], counts: counts, scatters: true}, layout{dt: r.dt, op: r.op, prescale: 1,
		postscale: r.scale})
	if err != nil {
		return l.refuse("reducescatter: %w", err)
	}
	return l.startScatter(s, l.one[:])
}

// startScatter chooses among the reducescatters of a lane without Comm. s has the pieces of parts.
func (l *Lane) startScatter(s layout, parts []Part) Op {
	switch n := s.length(); {
	case n == 0:
		return l.done()
	case l.size == 1:
		l.begin()
		return l.allreduceLocal.start(l, s)
	case l.inspect == nil && l.maySingleCopy(n, len(s.parts)) && l.scattering.asks(n):
		l.begin()
		return l.allreduceSingle.startDealt(l, Reducescatter, s, parts, &l.scattering)
	default:
		l.begin()
		return l.reducescatterShared.start(l, s)
	}
}
