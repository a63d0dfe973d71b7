package collective

import "github.com/gorovod/gorovod/internal/base/tensor"

// Reduce makes root's out = scale × (the members' in, combined elementwise by op). root is a lane member; len(in) is
// the same on all. On the root out is as long, and the same memory as in or apart from it. The other members have no
// out, and their in is only read. Arguments that reduce.Check and reduce.CheckScale refuse are an error.
//
// Inside a host the result has the bits of Allreduce's. Over Comm the algorithm decides the order; over hosts each
// host's operands are combined first, as in Allreduce. On a deterministic lane it has the bits of Allreduce's.
func (l *Lane) Reduce(root int, dt tensor.DType, op tensor.ReduceOp, in, out []byte, scale float64) Op {
	if err := checkReduction(dt, op, 1, scale); err != nil {
		return l.refuse("reduce: %w", err)
	}
	switch {
	case root < 0 || root >= l.size:
		return l.refuse("reduce: root %d is not among %d members", root, l.size)
	case len(in)%dt.Size() != 0:
		return l.refuse("reduce: %d bytes are not whole elements of %v", len(in), dt)
	case l.rank == root && len(out) != len(in):
		return l.refuse("reduce: input of %d bytes, output of %d", len(in), len(out))
	case l.rank != root && len(out) != 0:
		return l.refuse("reduce: output of %d bytes on member %d, but the root is %d", len(out), l.rank, root)
	case len(in) == 0:
		return l.done()
	}
	r := reduction{dt: dt, op: op, in: in, out: out, scale: scale}
	l.begin()
	switch {
	case l.size == 1:
		return l.allreduceLocal.start(l, l.whole(r))
	case l.shared != nil:
		return l.reduceShared.start(l, r, root)
	case l.hier != nil && l.options.Allreduce != Flat:
		return l.reduceHierarchical.start(l, r, root)
	case l.options.Deterministic:
		for m := range l.offsets {
			l.offsets[m] = 0
			if m > root {
				l.offsets[m] = len(in)
			}
		}
		return l.allreduceDirect.start(l, r, nil, false) // the root's part is all data
	default:
		return l.reduceTree.start(l, r, root)
	}
}
