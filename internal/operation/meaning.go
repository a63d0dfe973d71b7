package operation

import (
	"strconv"

	"github.com/gorovod/gorovod/internal/tensor"
)

// Of is the kind that a caller means who asks for k with a reduce operation: an allreduce with Adasum is a kind of
// its own.
func Of(k Kind, op tensor.ReduceOp) Kind {
	if k == Allreduce && op == tensor.Adasum {
		return Adasum
	}
	return k
}

// Combine is what an operation with the given reduce operation and postscale does among size members: how elements
// are combined, and what the result is multiplied by. An Average is a Sum that is divided by the number of members.
func Combine(op tensor.ReduceOp, postscale float64, size int) (tensor.ReduceOp, float64) {
	if op == tensor.Average {
		return tensor.Sum, postscale / float64(size)
	}
	return op, postscale
}

// Requested is what a rank's Request says of reduce operation and postscale. Where ranks compare their reduce
// operations an Average stays one, so that a rank that has asked for a Sum is told so; elsewhere its postscale tells.
func (d *Descriptor) Requested(op tensor.ReduceOp, postscale float64, size int) (tensor.ReduceOp, float64) {
	if d.Has(Op) || !d.Ops.Has(tensor.Average) {
		return op, postscale
	}
	return Combine(op, postscale, size)
}

// Agreed is the reduce operation that all ranks mean whose Requests agree; op is what they say.
func (k Kind) Agreed(op tensor.ReduceOp) tensor.ReduceOp {
	switch d := k.Describe(); {
	case d.Has(Op):
		return op
	case k == Adasum:
		return tensor.Adasum
	case d.Ops != 0:
		return tensor.Sum
	}
	return tensor.Average // it combines nothing: the zero value
}

// Share is how many of the rows of a tensor are those of member m of size. Members before rows modulo size have one
// more than the others.
func Share(rows int64, m, size int) int64 {
	share := rows / int64(size)
	if int64(m) < rows%int64(size) {
		share++
	}
	return share
}

// Ranks match operations by name. A collective without a name gets Noname and a number, counted among those of its
// process set for which Noname is the same, from 1. A meeting is always called Noname.

// Noname begins the name of operations that have none, or is all of it: "allreduce.noname". "" for what is not
// submitted by users.
func (d *Descriptor) Noname() string { return d.noname }

// NonameGrouped is Noname for groups: "grouped_allreduce.noname".
func (d *Descriptor) NonameGrouped() string { return d.nonameGrouped }

// AppendMember appends the name of the i-th of the n members of a group, from 0: "g_1of3".
func AppendMember(b []byte, group string, i, n int) []byte {
	b = append(append(b, group...), '_')
	b = append(strconv.AppendInt(b, int64(i+1), 10), "of"...)
	return strconv.AppendInt(b, int64(n), 10)
}
