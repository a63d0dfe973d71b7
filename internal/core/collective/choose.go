package collective

import (
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// The choice of algorithm depends only on properties that are equal on all members: the kind of the lane, its size, its
// chunks, and the number of bytes.

// flatBytes is the most that all members together may contribute for the flat allreduce: reading all of it costs less
// than a second synchronisation.
const flatBytes = 64 << 10

// Allreduce makes out = scale × (the members' in, combined elementwise by op). in and out have the same length, a
// multiple of the element's size, the same on all members; they are the same memory or do not overlap. Arguments that
// reduce.Check and reduce.CheckScale refuse are an error.
//
// Over Shared each element is combined in the order of the ranks. 16-bit floats are combined in float32 and rounded
// once. Over Comm the algorithm decides the order, and 16-bit floats are rounded after each hop. Over several hosts
// with Shared on them, each host's operands are combined as over Shared, and then the hosts' results as over Comm. All
// members get the same bits. See also Options.Deterministic.
func (l *Lane) Allreduce(dt tensor.DType, op tensor.ReduceOp, in, out []byte, scale float64) Op {
	return l.AllreduceAs(tensor.WireAsIs, dt, op, in, out, scale, nil)
}

// AllreduceAs is Allreduce with the elements in the form w on their way over Comm, if Wire.For says that w has an
// effect. The sums are made in the elements' own type: operands are rounded whenever they are sent, and the result at
// most once more.
//
// kept, of the length of in, is for a form that keeps errors (Wire.Keeps). It holds the errors of earlier allreduces of
// the tensor. This allreduce adds them, and leaves its own errors there. After a failure the contents of kept are
// undefined. nil: nothing is kept.
func (l *Lane) AllreduceAs(w tensor.Wire, dt tensor.DType, op tensor.ReduceOp, in, out []byte, scale float64,
	kept []byte) Op {
	n := len(in)
	if err := reduce.Check(dt, op); err != nil {
		return l.refuse("allreduce: %w", err)
	}
	if err := reduce.CheckScale(dt, scale); err != nil {
		return l.refuse("allreduce: %w", err)
	}
	switch {
	case n != len(out):
		return l.refuse("allreduce: input of %d bytes, output of %d", n, len(out))
	case n%dt.Size() != 0:
		return l.refuse("allreduce: %d bytes are not whole elements of %v", n, dt)
	case kept != nil && len(kept) != n:
		return l.refuse("allreduce: input of %d bytes, %d are kept", n, len(kept))
	case n == 0:
		return l.done()
	}
	if w = w.For(dt, op); w.Keeps() && n < leastQuantised {
		w = tensor.WireAsIs
	}
	r := reduction{dt: dt, op: op, in: in, out: out, scale: scale, wire: w, kept: kept}
	if l.takesParts() {
		return l.startParts(l.whole(r))
	}
	l.begin()
	form := l.allreduceForm(n, r.sent(n))
	if form == replicated && r.wire.Keeps() { // the members of a host may have kept different errors
		form = sharded
	}
	switch form {
	case replicated:
		return l.allreduceReplicated.start(l, r)
	case sharded:
		return l.allreduceHierarchical.start(l, r)
	}
	if r.wire.Keeps() {
		return l.allreduceQuantised.start(l, r)
	}
	if l.options.Deterministic {
		return l.allreduceDirect.startAllreduce(l, r)
	}
	switch way, _ := l.across(l.size, r.sent(n), 1, 1); way {
	case doubling:
		return l.allreduceDoubling.start(l, r)
	case halving:
		return l.allreduceHalving.start(l, r)
	default:
		return l.ring.startAllreduce(l, r)
	}
}

// reduction holds the arguments of an allreduce.
type reduction struct {
	dt      tensor.DType
	op      tensor.ReduceOp
	in, out []byte
	scale   float64
	wire    tensor.Wire // how the elements travel over Comm; one that has an effect
	// kept, of the input's length, holds the errors of earlier allreduces of the tensor. This allreduce adds them, and
	// leaves its own errors there. nil if the wire keeps nothing, or nothing is to be kept.
	kept []byte
}

// Allgather makes out the concatenation of the members' contributions in member order. counts holds the number of bytes
// of each contribution. It is the same on all members, and the operation does not keep it. in is this member's
// contribution. It may be this member's place in out; otherwise it does not overlap out.
func (l *Lane) Allgather(in, out []byte, counts []int64) Op {
	total, err := l.deal(l.offsets, counts)
	if err != nil {
		return l.refuse("allgather: %w", err)
	}
	switch {
	case int64(len(in)) != counts[l.rank]:
		return l.refuse("allgather: input of %d bytes, expected %d", len(in), counts[l.rank])
	case len(out) != total:
		return l.refuse("allgather: output of %d bytes, expected %d", len(out), total)
	case total == 0:
		return l.done()
	}
	switch {
	case l.takesParts():
		l.one[0] = Part{In: in, Out: out, Bytes: len(in)}
		return l.AllgatherParts(l.one[:], counts)
	case l.hier != nil && l.hier.contiguous && l.options.Allgather != Flat:
		l.begin()
		return l.allgatherHierarchical.start(l, in, out)
	default:
		l.begin()
		return l.ring.startAllgather(l, in, out)
	}
}

// AllgatherParts is Allgather of several parts, each of which has counts of its own: those of part 0, in the order of
// the members, then those of part 1, and so on. The parts' number and order, and counts, are the same on all members;
// counts is not kept. parts belongs to the operation until it has ended. A lane over Comm is an error.
func (l *Lane) AllgatherParts(parts []Part, counts []int64) Op {
	if !l.takesParts() {
		return l.refuse("allgather: parts over messages are not packed")
	}
	s, err := l.dealOut(dealt{parts: parts, counts: counts}, layout{prescale: 1, postscale: 1})
	if err != nil {
		return l.refuse("allgather: %w", err)
	}
	switch n := s.length(); {
	case n == 0:
		return l.done()
	case l.size == 1:
		for i := range s.parts {
			if p := &s.parts[i]; p.Out != nil {
				copyTo(p.Out, p.In)
			}
		}
		return l.done()
	case l.maySingleCopy(n, len(s.parts)) && l.gathering.asks(n):
		l.begin()
		return l.allreduceSingle.startDealt(l, Allgather, s, parts, &l.gathering)
	default:
		l.begin()
		return l.allgatherShared.start(l, s)
	}
}

// Broadcast copies root's buf into every member's. root is a lane member, and len(buf) is the same on all.
func (l *Lane) Broadcast(root int, buf []byte) Op {
	switch {
	case root < 0 || root >= l.size:
		return l.refuse("broadcast: root %d is not among %d members", root, l.size)
	case len(buf) == 0 || l.size == 1:
		return l.done()
	}
	l.begin()
	if l.shared != nil {
		return l.broadcastShared.start(l, root, buf)
	}
	if l.hier != nil {
		return l.broadcastHierarchical.start(l, root, buf)
	}
	return l.broadcastTree.start(l, root, buf)
}

// Barrier ends when every member has started it.
func (l *Lane) Barrier() Op {
	if l.size == 1 {
		return l.done()
	}
	l.begin()
	if l.shared != nil {
		return l.barrierShared.start(l)
	}
	if l.hier != nil {
		return l.barrierHierarchical.start(l)
	}
	return l.barrierRounds.start(l)
}
