package engine

import (
	"fmt"
	"math"
	"strings"

	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/negotiate"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// check validates everything about op that this rank can see alone.
func (l *lane) check(op *Op) *Error {
	d := op.Type.Describe()
	if err := l.checkTensor(d, op); err != nil || d.Role == operation.Meeting || d.Role == operation.SetChange {
		return err
	}
	if op.Owner != nil {
		if err := l.refusesDevice(d, op); err != nil {
			return err
		}
	}
	switch {
	case d.Role != operation.Collective:
		return errorf(InvalidArgument, "%s is not an operation.", d.Name)
	case !d.Types.Has(op.DType):
		return errorf(InvalidArgument, "%s of tensor %q: %v is not supported; floating-point types are.", d.Name,
			op.Name, op.DType)
	case d.Ops != 0 && op.Type != operation.Adasum && op.ReduceOp.Valid() && !d.Ops.Has(op.ReduceOp):
		return errorf(Aborted, "%s of tensor %q: %v is not possible: it currently only supports %v.", d.Name, op.Name,
			op.ReduceOp, d.Ops)
	case d.Ops != 0 && op.Type != operation.Adasum && op.ReduceOp.Valid() && !reducible(d, op).Has(op.DType):
		return errorf(InvalidArgument, "%s of tensor %q: there is no %v of %v%s; it takes %v.", d.Name, op.Name,
			op.ReduceOp, op.DType, whereFloat8(op.DType), reducible(d, op))
	case d.Has(operation.Root) && l.member(op.Root) < 0:
		return invalidRoot(op, l.members)
	case d.Has(operation.Rows) && len(op.Shape) == 0:
		return nil // refused by the coordinator, on all members
	case d.Output == operation.Sent:
		return l.checkSplits(op)
	case d.Output == operation.OfAll:
		return nil
	case d.Output == operation.OfKeys:
		return l.checkKeys(d, op)
	}
	if err := l.checkReduction(d, op); err != nil {
		return err
	}
	return l.checkOutput(d, op)
}

// reducible are the element types that op can combine where its memory is.
func reducible(d *operation.Descriptor, op *Op) operation.DTypes {
	if op.Owner == nil {
		return d.TypesOf(op.ReduceOp)
	}
	return d.TypesOnDevices(op.ReduceOp)
}

// whereFloat8 says where floats of 8 bits can be combined.
func whereFloat8(dt tensor.DType) string {
	if !dt.IsFloat8() {
		return ""
	}
	return " in host memory (NCCL 2.24 has some, on GPUs of compute capability 9.0)"
}

func invalidRoot(op *Op, ranks []int) *Error {
	kind, members := op.Type.Describe().Name, fmt.Sprintf("size %d", len(ranks))
	if op.Set != 0 {
		members = fmt.Sprintf("ranks %v", ranks)
	}
	return errorf(InvalidArgument, "%s of tensor %q: %s received invalid root rank %d for provided process set (%s).",
		kind, op.Name, strings.ToLower(kind), op.Root, members)
}

// checkTensor validates name, type, shape and input.
func (l *lane) checkTensor(d *operation.Descriptor, op *Op) *Error {
	kind := d.Name
	if len(op.Name) > negotiate.MaxName {
		return errorf(InvalidArgument, "%s: the tensor name has %d bytes; at most %d are possible.", kind, len(op.Name),
			negotiate.MaxName)
	}
	if op.Name == "" {
		return errorf(InvalidArgument, "%s: a tensor name is needed.", kind)
	}
	if !op.DType.Valid() {
		return errorf(InvalidArgument, "%s of tensor %q: unknown data type %d.", kind, op.Name, op.DType)
	}
	if len(op.Shape) > negotiate.MaxDims {
		return errorf(InvalidArgument, "%s of tensor %q: %d dimensions; at most %d are possible.", kind, op.Name,
			len(op.Shape), negotiate.MaxDims)
	}
	n, err := op.Shape.NumElements()
	if err != nil {
		return errorf(InvalidArgument, "%s of tensor %q: %v.", kind, op.Name, err)
	}
	if n > math.MaxInt64/8/int64(max(1, len(l.members))) {
		return errorf(InvalidArgument, "%s of tensor %q: shape %v has too many elements.", kind, op.Name, op.Shape)
	}
	if d.Role != operation.Collective || d.Output == operation.OfKeys {
		return nil
	}
	if bytes := n * int64(op.DType.Size()); int64(len(op.In)) != bytes {
		return errorf(InvalidArgument, "%s of tensor %q: %d bytes of input for shape %v of %v, which has %d.", kind,
			op.Name, len(op.In), op.Shape, op.DType, bytes)
	}
	return nil
}

// checkReduction validates operation and factors.
func (l *lane) checkReduction(d *operation.Descriptor, op *Op) *Error {
	if d.Ops == 0 || op.Type == operation.Adasum {
		return nil // Adasum's factors are the coordinator's to compare
	}
	kind := d.Name
	if !op.ReduceOp.Valid() {
		return errorf(InvalidArgument, "%s of tensor %q: unknown reduce operation %d.", kind, op.Name, op.ReduceOp)
	}
	if !op.Wire.Valid() {
		return errorf(InvalidArgument, "%s of tensor %q: unknown compression %d.", kind, op.Name, op.Wire)
	}
	if d.Has(operation.Wire) && l.engine.wire(op).Keeps() {
		if err := l.checkKeeping(d, op); err != nil {
			return err
		}
	}
	reduceOp, scale := operation.Combine(op.ReduceOp, op.Postscale, len(l.members))
	if op.DType.IsFloat8() {
		return nil // the device's carrier knows whether it can
	}
	if err := reduce.Check(op.DType, reduceOp); err != nil {
		return errorf(InvalidArgument, "%s of tensor %q: %v.", kind, op.Name, err)
	}
	for _, f := range [2]float64{op.Prescale, scale} {
		if err := reduce.CheckScale(op.DType, f); err != nil {
			return errorf(InvalidArgument, "%s of tensor %q (%v): %v.", kind, op.Name, op.ReduceOp, err)
		}
	}
	return nil
}

// checkKeeping refuses a compression that keeps errors if GOROVOD_DETERMINISTIC forbids it, or if there is no response
// cache to keep the errors in.
func (l *lane) checkKeeping(d *operation.Descriptor, op *Op) *Error {
	o := &l.engine.opts
	switch w := l.engine.wire(op); {
	case o.Collective.Deterministic:
		return errorf(InvalidArgument, "%s of tensor %q: with GOROVOD_DETERMINISTIC=1 there is no compression %v, "+
			"whose bits depend on the tensors that travel together.", d.Name, op.Name, w)
	case o.CacheCapacity == 0:
		return errorf(InvalidArgument, "%s of tensor %q: compression %v keeps errors with the tensors that are "+
			"remembered, and HOROVOD_CACHE_CAPACITY=0 remembers none.", d.Name, op.Name, w)
	}
	return nil
}

// hasOutput reports whether op has an output on this member.
func (l *lane) hasOutput(d *operation.Descriptor, op *Op) bool {
	return d.Output != operation.OnRootOnly || op.Root == l.engine.opts.Rank
}

// outputBytes is the size of op's output on this member, if it has one here.
func (l *lane) outputBytes(d *operation.Descriptor, op *Op) int {
	if d.Output == operation.OwnRows {
		return int(operation.Share(op.Shape[0], l.rank, len(l.members)) * rowBytes(op.Shape, op.DType))
	}
	return len(op.In)
}

func (l *lane) checkOutput(d *operation.Descriptor, op *Op) *Error {
	if op.Alloc != nil && op.Out == nil || !l.hasOutput(d, op) {
		return nil
	}
	if bytes := l.outputBytes(d, op); len(op.Out) != bytes {
		return errorf(InvalidArgument, "%s of tensor %q: %d bytes of output, but the result has %d.", d.Name, op.Name,
			len(op.Out), bytes)
	}
	if !overlap(op.In, op.Out) {
		return nil
	}
	place, what := int64(0), "the input"
	if d.Output == operation.OwnRows {
		if op.Owner == nil {
			return nil // host memory goes through a copy
		}
		place = operation.Begin(op.Shape[0], l.rank, len(l.members)) * rowBytes(op.Shape, op.DType)
		what = "this rank's own rows there"
	}
	if &op.In[place] != &op.Out[0] {
		return errorf(InvalidArgument, "%s of tensor %q: the output overlaps with the input; it must be %s, or apart "+
			"from it.", d.Name, op.Name, what)
	}
	return nil
}

// checkSplits validates how many rows an Alltoall sends to each member.
func (l *lane) checkSplits(op *Op) *Error {
	size := int64(len(l.members))
	if len(op.Shape) == 0 {
		return nil // refused by the coordinator, on all members
	}
	rows := op.Shape[0]
	if len(op.Splits) == 0 {
		if rows%size != 0 {
			return errorf(InvalidArgument, "Alltoall of tensor %q: splits are not given, and the first dimension %d "+
				"is not divisible by the number of processes %d.", op.Name, rows, size)
		}
		if rows/size > math.MaxInt32 {
			return errorf(InvalidArgument, "Alltoall of tensor %q: %d rows for each process are too many.", op.Name,
				rows/size)
		}
		return nil
	}
	if int64(len(op.Splits)) != size {
		return errorf(InvalidArgument, "Alltoall of tensor %q: %d splits for %d processes.", op.Name,
			len(op.Splits), size)
	}
	sum := int64(0)
	for i, s := range op.Splits {
		if s < 0 {
			return errorf(InvalidArgument, "Alltoall of tensor %q: split %d is negative (%d).", op.Name, i, s)
		}
		sum += int64(s)
	}
	if sum > rows {
		return errorf(InvalidArgument, "Alltoall of tensor %q: the sum of the splits %d is greater than the first "+
			"dimension %d.", op.Name, sum, rows)
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

// rowBytes is the size in bytes of one row: of one index of the first dimension.
func rowBytes(s tensor.Shape, dt tensor.DType) int64 {
	n := int64(dt.Size())
	for _, d := range s[1:] {
		n *= d
	}
	return n
}
