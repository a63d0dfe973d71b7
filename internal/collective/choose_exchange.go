package collective

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/gorovod/gorovod/internal/reduce"
	"github.com/gorovod/gorovod/internal/tensor"
)

// exchangeBytes is the most that a member may have to hold for the exchange form
// of a reducescatter over Comm.
const exchangeBytes = 256 << 10

// Reducescatter makes out = scale × (this member's part of the members' in,
// combined elementwise by op). counts holds the bytes of each member's part, in
// the order of the parts in in; it is the same on all members, and is not kept.
// in and out may not overlap. What reduce.Check and reduce.CheckScale refuse is
// an error.
//
// Over Shared the result has the bits of Allreduce's. Over Comm the association
// is the algorithm's.
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
		return l.allreduceLocal.start(l, r)
	case l.shared != nil:
		l.begin()
		return l.reducescatterShared.start(l, r)
	case longest <= int64(exchangeBytes/l.size):
		return l.reducescatterExchange.start(l, r, counts)
	default:
		l.begin()
		return l.reducescatterRing.start(l, r)
	}
}

// Alltoall sends each member m the next sendBytes[m] bytes of in, and makes out
// what the members send to this one, in member order, recvBytes[m] bytes from m.
// A member knows its own sizes only; AlltoallCounts tells them. in and out may
// not overlap. sendBytes and recvBytes are not kept.
//
// That a member sends another number of bytes than this one expects is found
// while the operation runs: over Shared it ends with an error, on this member
// only, and over Comm the transport aborts.
func (l *Lane) Alltoall(in []byte, sendBytes []int64, out []byte, recvBytes []int64) Op {
	sends, err := l.deal(l.offsets, sendBytes)
	if err != nil {
		return l.refuse("alltoall: input: %w", err)
	}
	receives, err := l.deal(l.places, recvBytes)
	if err != nil {
		return l.refuse("alltoall: output: %w", err)
	}
	switch {
	case len(in) != sends:
		return l.refuse("alltoall: input of %d bytes, expected %d", len(in), sends)
	case len(out) != receives:
		return l.refuse("alltoall: output of %d bytes, expected %d", len(out), receives)
	case sendBytes[l.rank] != recvBytes[l.rank]:
		return l.refuse("alltoall: member %d sends itself %d bytes and expects %d", l.rank, sendBytes[l.rank], recvBytes[l.rank])
	case l.size == 1:
		copy(out, in)
		return l.done()
	}
	l.begin()
	if l.shared != nil {
		return l.alltoallShared.start(l, in, out)
	}
	return l.alltoallPairwise.start(l, in, out)
}

// AlltoallCounts makes received[m] what member m has in its send for this
// member. Both have an entry for each member, do not overlap, and belong to the
// operation until it has ended.
func (l *Lane) AlltoallCounts(send, received []int64) Op {
	if len(send) != l.size || len(received) != l.size {
		return l.refuse("alltoall: %d counts to send and %d to receive for %d members", len(send), len(received), l.size)
	}
	for m := range l.each {
		l.each[m] = 8
	}
	return l.Alltoall(int64Bytes(send), l.each, int64Bytes(received), l.each)
}

// int64Bytes is s as bytes, in the processor's order, which is the same on all
// members.
func int64Bytes(s []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 8*len(s))
}

// Adasum combines data in place, on all members, by Adasum's rule (Maleki et
// al., arXiv:2006.02924), one segment after the other, and multiplies it by scale.
// A segment is a tensor of a fused buffer; segments holds their lengths in bytes,
// which make len(data), the same on all members. It is not kept. The types are
// the floats.
//
// All members get the same bits, which depend neither on the transport nor on
// what else is in the buffer. See the type adasum for the order.
func (l *Lane) Adasum(dt tensor.DType, data []byte, segments []int, scale float64) Op {
	switch dt {
	case tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64:
	default:
		return l.refuse("adasum: elements of type %v are not floats", dt)
	}
	total := 0
	for i, n := range segments {
		if n < 0 || n > len(data)-total {
			return l.refuse("adasum: segment %d of %d bytes is beyond the %d of the data", i, n, len(data))
		}
		if n%dt.Size() != 0 {
			return l.refuse("adasum: segment %d of %d bytes is not whole elements of %v", i, n, dt)
		}
		total += n
	}
	switch {
	case total != len(data):
		return l.refuse("adasum: segments of %d bytes, data of %d", total, len(data))
	case len(data) == 0:
		return l.done()
	case l.size == 1:
		l.begin()
		return l.allreduceLocal.start(l, reduction{dt: dt, op: tensor.Sum, in: data, out: data, scale: scale})
	}
	return l.adasum.start(l, dt, data, segments, scale)
}

// deal makes bounds the places of the members' parts of counts bytes, and
// returns the sum.
func (l *Lane) deal(bounds []int, counts []int64) (int, error) {
	if len(counts) != l.size {
		return 0, fmt.Errorf("%d counts for %d members", len(counts), l.size)
	}
	total := int64(0)
	for m, c := range counts {
		if c < 0 || c > math.MaxInt-total {
			return 0, fmt.Errorf("member %d cannot have %d bytes", m, c)
		}
		bounds[m] = int(total)
		total += c
	}
	bounds[l.size] = int(total)
	return int(total), nil
}
