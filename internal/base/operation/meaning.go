package operation

import (
	"strconv"

	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Of returns the kind that a caller means by k with a reduce operation: an allreduce with Adasum is a kind of its own.
func Of(k Kind, op tensor.ReduceOp) Kind {
	if k == Allreduce && op == tensor.Adasum {
		return Adasum
	}
	return k
}

// Combine translates a reduce operation and postscale for size members: it returns how to combine elements, and the
// factor for the result. An Average is a Sum divided by the number of members.
func Combine(op tensor.ReduceOp, postscale float64, size int) (tensor.ReduceOp, float64) {
	if op == tensor.Average {
		return tensor.Sum, postscale / float64(size)
	}
	return op, postscale
}

// Requested returns the reduce operation and postscale for a rank's Request. An Average stays one, so that a rank that
// has asked for a Sum gets an error. If d is AverageInPostscale, an Average becomes a Sum, and the postscale
// distinguishes the two.
func (d *Descriptor) Requested(op tensor.ReduceOp, postscale float64, size int) (tensor.ReduceOp, float64) {
	if !d.AverageInPostscale {
		return op, postscale
	}
	return Combine(op, postscale, size)
}

// Agreed returns the reduce operation that all ranks mean, given the op in which their Requests agree.
func (k Kind) Agreed(op tensor.ReduceOp) tensor.ReduceOp {
	switch d := k.Describe(); {
	case d.Has(Op):
		return op
	case k == Adasum:
		return tensor.Adasum
	}
	return tensor.Average // k combines nothing: the zero value
}

// Share returns how many of a tensor's rows member m of size gets. The first rows%size members get one more than the
// others.
func Share(rows int64, m, size int) int64 {
	share := rows / int64(size)
	if int64(m) < rows%int64(size) {
		share++
	}
	return share
}

// Begin returns the first of the rows that member m of size gets: see Share.
func Begin(rows int64, m, size int) int64 {
	return rows/int64(size)*int64(m) + min(int64(m), rows%int64(size))
}

// Ranks match operations by name. A collective without a name gets Noname and a number. The number counts the
// operations with the same Noname on its process set, from 1. A meeting is always called Noname.

// Noname begins the name of operations without one: "allreduce.noname". For a meeting it is the whole name. "" for
// kinds that users cannot submit.
func (d *Descriptor) Noname() string { return d.noname }

// NonameGrouped is Noname for groups: "grouped_allreduce.noname".
func (d *Descriptor) NonameGrouped() string { return d.nonameGrouped }

// AppendMember appends the name of the i-th of the n members of a group, from 0: "g_1of3".
func AppendMember(b []byte, group string, i, n int) []byte {
	b = append(append(b, group...), '_')
	b = append(strconv.AppendInt(b, int64(i+1), 10), "of"...)
	return strconv.AppendInt(b, int64(n), 10)
}
