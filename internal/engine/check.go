package engine

import (
	"math"

	"github.com/gorovod/gorovod/internal/negotiate"
	"github.com/gorovod/gorovod/internal/operation"
	"github.com/gorovod/gorovod/internal/reduce"
	"github.com/gorovod/gorovod/internal/tensor"
)

// check validates what can be seen on this rank alone.
func (l *lane) check(op *Op) *Error {
	if err := l.checkTensor(op); err != nil {
		return err
	}
	switch op.Type {
	case operation.Allreduce:
		return l.checkReduction(op, len(op.In))
	case operation.Adasum:
		switch op.DType {
		case tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64:
		default:
			return errorf(InvalidArgument, "Adasum of tensor %q: %v is not supported; floating-point types are.", op.Name, op.DType)
		}
		return l.checkOutput(op, len(op.In))
	case operation.Reducescatter:
		if op.ReduceOp != tensor.Sum && op.ReduceOp != tensor.Average {
			return errorf(Aborted, "Reducescatter of tensor %q: %v is not possible: it currently only supports AVERAGE and SUM.", op.Name, op.ReduceOp)
		}
		if len(op.Shape) == 0 {
			return nil // refused by the coordinator, on all members
		}
		rows, rowBytes := op.Shape[0], rowBytes(op.Shape, op.DType)
		return l.checkReduction(op, int(l.rowsOf(rows, l.rank)*rowBytes))
	case operation.Broadcast:
		if l.member(op.Root) < 0 {
			return errorf(InvalidArgument, "Broadcast of tensor %q: broadcast received invalid root rank %d for provided process set (size %d).", op.Name, op.Root, len(l.members))
		}
		return l.checkOutput(op, len(op.In))
	case operation.Alltoall:
		return l.checkSplits(op)
	case operation.Allgather, operation.Barrier, operation.Join, operation.AddProcessSet, operation.RemoveProcessSet:
		return nil
	}
	return errorf(InvalidArgument, "%s is not an operation.", opName(op.Type))
}

// checkTensor validates name, type, shape and input.
func (l *lane) checkTensor(op *Op) *Error {
	kind := opName(op.Type)
	if len(op.Name) > negotiate.MaxName {
		return errorf(InvalidArgument, "%s: the tensor name has %d bytes; at most %d are possible.", kind, len(op.Name), negotiate.MaxName)
	}
	if op.Name == "" {
		return errorf(InvalidArgument, "%s: a tensor name is needed.", kind)
	}
	if !op.DType.Valid() {
		return errorf(InvalidArgument, "%s of tensor %q: unknown data type %d.", kind, op.Name, op.DType)
	}
	if len(op.Shape) > negotiate.MaxDims {
		return errorf(InvalidArgument, "%s of tensor %q: %d dimensions; at most %d are possible.", kind, op.Name, len(op.Shape), negotiate.MaxDims)
	}
	n, err := op.Shape.NumElements()
	if err != nil {
		return errorf(InvalidArgument, "%s of tensor %q: %v.", kind, op.Name, err)
	}
	if n > math.MaxInt64/8/int64(max(1, len(l.members))) {
		return errorf(InvalidArgument, "%s of tensor %q: shape %v has too many elements.", kind, op.Name, op.Shape)
	}
	switch op.Type {
	case operation.Barrier, operation.Join, operation.AddProcessSet, operation.RemoveProcessSet:
		return nil
	}
	if bytes := n * int64(op.DType.Size()); int64(len(op.In)) != bytes {
		return errorf(InvalidArgument, "%s of tensor %q: %d bytes of input for shape %v of %v, which has %d.", kind, op.Name, len(op.In), op.Shape, op.DType, bytes)
	}
	return nil
}

// checkReduction validates operation and factors.
func (l *lane) checkReduction(op *Op, outBytes int) *Error {
	kind := opName(op.Type)
	if !op.ReduceOp.Valid() {
		return errorf(InvalidArgument, "%s of tensor %q: unknown reduce operation %d.", kind, op.Name, op.ReduceOp)
	}
	if !op.Wire.Valid() {
		return errorf(InvalidArgument, "%s of tensor %q: unknown compression %d.", kind, op.Name, op.Wire)
	}
	reduceOp, scale := op.ReduceOp, op.Postscale
	if reduceOp == tensor.Average {
		reduceOp = tensor.Sum
		scale /= float64(len(l.members))
	}
	if err := reduce.Check(op.DType, reduceOp); err != nil {
		return errorf(InvalidArgument, "%s of tensor %q: %v.", kind, op.Name, err)
	}
	for _, f := range [2]float64{op.Prescale, scale} {
		if err := reduce.CheckScale(op.DType, f); err != nil {
			return errorf(InvalidArgument, "%s of tensor %q (%v): %v.", kind, op.Name, op.ReduceOp, err)
		}
	}
	return l.checkOutput(op, outBytes)
}

func (l *lane) checkOutput(op *Op, bytes int) *Error {
	if op.Alloc != nil && op.Out == nil {
		return nil
	}
	if len(op.Out) != bytes {
		return errorf(InvalidArgument, "%s of tensor %q: %d bytes of output, but the result has %d.", opName(op.Type), op.Name, len(op.Out), bytes)
	}
	if op.Type != operation.Reducescatter && overlap(op.In, op.Out) && &op.In[0] != &op.Out[0] {
		return errorf(InvalidArgument, "%s of tensor %q: the output overlaps with the input; it must be the input, or apart from it.", opName(op.Type), op.Name)
	}
	return nil
}

// checkSplits validates what an Alltoall sends to whom.
func (l *lane) checkSplits(op *Op) *Error {
	size := int64(len(l.members))
	if len(op.Shape) == 0 {
		return nil // refused by the coordinator, on all members
	}
	rows := op.Shape[0]
	if len(op.Splits) == 0 {
		if rows%size != 0 {
			return errorf(InvalidArgument, "Alltoall of tensor %q: splits are not given, and the first dimension %d is not divisible by the number of processes %d.", op.Name, rows, size)
		}
		if rows/size > math.MaxInt32 {
			return errorf(InvalidArgument, "Alltoall of tensor %q: %d rows for each process are too many.", op.Name, rows/size)
		}
		return nil
	}
	if int64(len(op.Splits)) != size {
		return errorf(InvalidArgument, "Alltoall of tensor %q: %d splits for %d processes.", op.Name, len(op.Splits), size)
	}
	sum := int64(0)
	for i, s := range op.Splits {
		if s < 0 {
			return errorf(InvalidArgument, "Alltoall of tensor %q: split %d is negative (%d).", op.Name, i, s)
		}
		sum += int64(s)
	}
	if sum > rows {
		return errorf(InvalidArgument, "Alltoall of tensor %q: the sum of the splits %d is greater than the first dimension %d.", op.Name, sum, rows)
	}
	return nil
}

// splits are the rows that go to each member.
func (l *lane) splits(op *Op) []int32 {
	rows := make([]int32, len(l.members))
	if len(op.Splits) > 0 {
		copy(rows, op.Splits)
	} else if len(op.Shape) > 0 {
		for i := range rows {
			rows[i] = int32(op.Shape[0] / int64(len(rows)))
		}
	}
	return rows
}

// rowsOf is how many of rows go to member m: the first members get one more.
func (l *lane) rowsOf(rows int64, m int) int64 {
	size := int64(len(l.members))
	n := rows / size
	if int64(m) < rows%size {
		n++
	}
	return n
}

// rowBytes is the size of one step of the first dimension.
func rowBytes(s tensor.Shape, dt tensor.DType) int64 {
	n := int64(dt.Size())
	for _, d := range s[1:] {
		n *= d
	}
	return n
}
