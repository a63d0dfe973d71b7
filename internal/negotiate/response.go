package negotiate

import (
	"math"
	"slices"
)

// merge is the Response to requests that were found to agree; reqs[i] is
// member i's. It takes only those fields that mean something for the type, so
// that a stray value in another one cannot keep a Response from being repeated.
func merge(reqs []*Request) *Response {
	first := reqs[0]
	resp := &Response{
		Type:      first.Type,
		DType:     first.DType,
		Name:      first.Name,
		Device:    first.Device,
		Prescale:  1,
		Postscale: 1,
		Group:     first.Group,
		GroupSize: first.GroupSize,
		Slot:      NoSlot,
	}
	switch first.Type {
	case Allreduce:
		resp.Shape = first.Shape
		resp.ReduceOp = first.ReduceOp
		resp.Prescale = first.Prescale
		resp.Postscale = first.Postscale
	case Broadcast:
		resp.Shape = first.Shape
		resp.Root = first.Root
	case Allgather:
		resp.Shape = slices.Clone(first.Shape)
		resp.Shape[0] = 0
		resp.FirstDims = make([]int64, len(reqs))
		for i, r := range reqs {
			resp.FirstDims[i] = r.Shape[0]
			resp.Shape[0] += r.Shape[0]
		}
	}
	return resp
}

// answers reports whether r says the same as did member's Request that led to
// this Response. Of the device only the kind counts: each member has its own GPU.
func (r *Response) answers(q *Request, member int) bool {
	if q.Type != r.Type || q.DType != r.DType || !sameKind(q.Device, r.Device) || q.Name != r.Name ||
		q.Group != r.Group || q.GroupSize != r.GroupSize {
		return false
	}
	switch r.Type {
	case Allreduce:
		return q.ReduceOp == r.ReduceOp && q.Shape.Equal(r.Shape) &&
			sameFactor(q.Prescale, r.Prescale) && sameFactor(q.Postscale, r.Postscale)
	case Broadcast:
		return q.Root == r.Root && q.Shape.Equal(r.Shape)
	case Allgather:
		return len(q.Shape) == len(r.Shape) && len(q.Shape) > 0 &&
			member < len(r.FirstDims) && q.Shape[0] == r.FirstDims[member] &&
			q.Shape[1:].Equal(r.Shape[1:])
	case Barrier:
		return true
	}
	return false
}

// request is the inverse of merge: what member must have meant when it marked
// this Response's slot.
func (r *Response) request(member int) *Request {
	q := &Request{
		Type:      r.Type,
		DType:     r.DType,
		ReduceOp:  r.ReduceOp,
		Name:      r.Name,
		Root:      r.Root,
		Device:    r.Device,
		Shape:     r.Shape,
		Prescale:  r.Prescale,
		Postscale: r.Postscale,
		Group:     r.Group,
		GroupSize: r.GroupSize,
	}
	if r.Type == Allgather {
		q.Shape = slices.Clone(r.Shape)
		q.Shape[0] = r.FirstDims[member]
	}
	return q
}

// repeats reports whether r says the same as o, their slots aside.
func (r *Response) repeats(o *Response) bool {
	return r.Type == o.Type && r.Err == o.Err && r.DType == o.DType && r.ReduceOp == o.ReduceOp &&
		r.Name == o.Name && r.Root == o.Root && r.Device == o.Device &&
		r.Shape.Equal(o.Shape) && slices.Equal(r.FirstDims, o.FirstDims) &&
		r.Group == o.Group && r.GroupSize == o.GroupSize && slices.Equal(r.Joined, o.Joined) &&
		sameFactor(r.Prescale, o.Prescale) && sameFactor(r.Postscale, o.Postscale)
}

// repeats reports whether r and o are equal in every field.
func (r *Request) repeats(o *Request) bool {
	return r.Type == o.Type && r.DType == o.DType && r.ReduceOp == o.ReduceOp &&
		r.Name == o.Name && r.Root == o.Root && r.Device == o.Device && r.Shape.Equal(o.Shape) &&
		r.Group == o.Group && r.GroupSize == o.GroupSize && slices.Equal(r.Ranks, o.Ranks) &&
		sameFactor(r.Prescale, o.Prescale) && sameFactor(r.Postscale, o.Postscale)
}

func sameKind(a, b int32) bool { return (a == CPUDevice) == (b == CPUDevice) }

// sameFactor compares bit by bit, so that a NaN agrees with itself.
func sameFactor(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
