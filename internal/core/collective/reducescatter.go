package collective

import (
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// exchangeBytes is the most that a member may have to hold for the exchange form
// of a reducescatter over Comm.
const exchangeBytes = 256 << 10

// Reducescatter makes out = scale × (this member's part of the members' in, combined elementwise by op). counts holds
// the bytes of each member's part, in the order of the parts in in; it is the same on all members, and is not kept. in
// and out may not overlap. Arguments that reduce.Check and reduce.CheckScale refuse are an error.
//
// Over Shared the result has the bits of Allreduce's. Over Comm the algorithm decides the order; over hosts with
// equally many members it is Allreduce's inside each host. On a deterministic lane it is Allreduce's order, except over
// unequal hosts: there it is the order of the members.
func (l *Lane) Reducescatter(dt tensor.DType, op tensor.ReduceOp, in, out []byte, counts []int64, scale float64) Op {
	if err := reduce.Check(dt, op); err != nil {
		return l.refuse("reducescatter: %w", err)
	}
	if err := reduce.CheckScale(dt, scale); err != nil {
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
	case l.size == 1:
		l.begin()
		return l.allreduceLocal.start(l, l.whole(r))
	case l.shared != nil:
		l.begin()
		return l.reducescatterShared.start(l, r)
	case l.hier != nil && l.hier.equal() && l.options.Allreduce != Flat:
		l.begin()
		return l.reducescatterHierarchical.start(l, r)
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
