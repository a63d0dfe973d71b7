package negotiate

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gorovod/gorovod/internal/tensor"
)

// check is one condition on the members' Requests. Member 0's is compared with
// each one's, its own included.
type check struct {
	types []RequestType // of member 0's Request; nil: all
	ok    func(first, r *Request) bool
	// text is Horovod's message about the first pair that is not ok.
	text func(first, r *Request) string
	// show is what a member's Request says in the matter.
	show func(r *Request) string
}

// checks are Horovod's, in its order: the first that fails speaks.
var checks = []check{
	{
		ok: func(first, r *Request) bool { return r.DType == first.DType },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched data types: One rank had type %v, but another rank had type %v.", first.DType, r.DType)
		},
		show: func(r *Request) string { return r.DType.String() },
	},
	{
		ok: func(first, r *Request) bool { return r.Type == first.Type },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched operations: One rank did an %v, but another rank did an %v.", first.Type, r.Type)
		},
		show: func(r *Request) string { return r.Type.String() },
	},
	{ // Not Horovod's; the checks below are about the types that are left.
		ok: func(first, _ *Request) bool {
			return slices.Contains([]RequestType{Allreduce, Allgather, Broadcast, Barrier}, first.Type)
		},
		text: func(first, _ *Request) string { return fmt.Sprintf("Operation %v is not supported.", first.Type) },
	},
	{
		types: []RequestType{Allreduce, Broadcast},
		ok:    func(first, r *Request) bool { return r.Shape.Equal(first.Shape) },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched %v tensor shapes: One rank sent a tensor of shape %v, but another rank sent a tensor of shape %v.",
				first.Type, first.Shape, r.Shape)
		},
		show: showShape,
	},
	{
		types: []RequestType{Allreduce},
		ok: func(first, r *Request) bool {
			return sameFactor(r.Prescale, first.Prescale) && sameFactor(r.Postscale, first.Postscale)
		},
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched prescale and/or postscale factors: One rank sent factors %s, but another rank sent factors %s.",
				showFactors(first), showFactors(r))
		},
		show: showFactors,
	},
	{
		types: []RequestType{Allreduce},
		ok:    func(first, r *Request) bool { return r.ReduceOp == first.ReduceOp },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched reduction operation: One rank sent reduction op %d, but another rank sent reduction op %d.",
				first.ReduceOp, r.ReduceOp)
		},
		show: func(r *Request) string { return r.ReduceOp.String() },
	},
	{
		types: []RequestType{Allgather},
		ok:    func(first, _ *Request) bool { return len(first.Shape) > 0 },
		text: func(first, _ *Request) string {
			return fmt.Sprintf("Process-set rank zero tried to %v a rank-zero tensor.", first.Type)
		},
		show: showShape,
	},
	{
		types: []RequestType{Allgather},
		ok:    func(first, r *Request) bool { return len(r.Shape) == len(first.Shape) },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched %v tensor shapes: One rank sent a tensor of rank %d, but another rank sent a tensor of rank %d.",
				first.Type, len(first.Shape), len(r.Shape))
		},
		show: showShape,
	},
	{
		types: []RequestType{Allgather},
		ok:    func(first, r *Request) bool { return r.Shape[1:].Equal(first.Shape[1:]) },
		text: func(first, r *Request) string {
			d := 1
			for first.Shape[d] == r.Shape[d] {
				d++
			}
			return fmt.Sprintf("Mismatched %v tensor shapes: One rank sent a tensor with dimension %d equal to %d, but another rank sent a tensor with dimension %d equal to %d.",
				first.Type, d, first.Shape[d], d, r.Shape[d])
		},
		show: showShape,
	},
	{
		types: []RequestType{Broadcast},
		ok:    func(first, r *Request) bool { return r.Root == first.Root },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched %v root ranks: One rank specified root rank %d, but another rank specified root rank %d.",
				first.Type, first.Root, r.Root)
		},
		show: func(r *Request) string { return strconv.Itoa(int(r.Root)) },
	},
	{
		ok: func(first, r *Request) bool { return sameKind(r.Device, first.Device) },
		text: func(first, r *Request) string {
			return fmt.Sprintf("Mismatched %v CPU/GPU device selection: One rank specified device %s, but another rank specified device %s.",
				first.Type, showDevice(first), showDevice(r))
		},
		show: showDevice,
	},
}

// validate says why the members' Requests for one name cannot be executed;
// empty if they can. Horovod's text comes first, then which ranks said what.
func (c *Coordinator) validate(reqs []*Request) string {
	first := reqs[0]
	for i := range checks {
		k := &checks[i]
		if k.types != nil && !slices.Contains(k.types, first.Type) {
			continue
		}
		for _, r := range reqs {
			if k.ok(first, r) {
				continue
			}
			if k.show == nil {
				return k.text(first, r)
			}
			return k.text(first, r) + " " + c.spread(reqs, k.show)
		}
	}
	return c.implausible(reqs)
}

// implausible refuses what the members agree on but nobody can execute. The
// engine refuses it at the door; here it keeps a Response from being wrong.
func (c *Coordinator) implausible(reqs []*Request) string {
	first := reqs[0]
	switch first.Type {
	case Barrier:
		return ""
	case Allreduce:
		if first.ReduceOp == tensor.Adasum || !first.ReduceOp.Valid() {
			return fmt.Sprintf("%v with %v is not supported.", first.Type, first.ReduceOp)
		}
	case Broadcast:
		if _, ok := slices.BinarySearch(c.members, int(first.Root)); !ok {
			return fmt.Sprintf("broadcast received invalid root rank %d for provided process set", first.Root)
		}
	}
	if !first.DType.Valid() {
		return fmt.Sprintf("Unknown data type: %v.", first.DType)
	}
	shape := first.Shape
	if first.Type == Allgather {
		dims := make([]int64, len(reqs))
		for i, r := range reqs {
			if dims[i] = r.Shape[0]; dims[i] < 0 {
				return fmt.Sprintf("%v: shape %v: dimension 0 is negative", first.Type, r.Shape)
			}
		}
		sum, err := sumDims(dims)
		if err != nil {
			return fmt.Sprintf("%v: %v", first.Type, err)
		}
		shape = slices.Clone(shape)
		shape[0] = sum
	}
	if _, err := byteSize(shape, first.DType); err != nil {
		return fmt.Sprintf("%v: %v", first.Type, err)
	}
	return ""
}

func showShape(r *Request) string { return r.Shape.String() }

func showFactors(r *Request) string {
	return "(" + strconv.FormatFloat(r.Prescale, 'g', -1, 64) + ", " + strconv.FormatFloat(r.Postscale, 'g', -1, 64) + ")"
}

func showDevice(r *Request) string {
	if r.Device == CPUDevice {
		return "CPU"
	}
	return "GPU"
}
