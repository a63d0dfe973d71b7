package negotiate

import (
	"math"
	"slices"

	"github.com/gorovod/gorovod/internal/base/operation"
)

// firstOf is the Request of the lowest member that has sent one. A nil stands for a member that has joined. At least
// one Request is not nil.
func firstOf(reqs []*Request) *Request {
	return reqs[slices.IndexFunc(reqs, func(r *Request) bool { return r != nil })]
}

// absentOf lists the members without a Request, ascending.
func absentOf(reqs []*Request) []int32 {
	var absent []int32
	for m, r := range reqs {
		if r == nil {
			absent = append(absent, int32(m))
		}
	}
	return absent
}

// merge returns the Response to Requests that agree; reqs[i] is member i's, nil if it has joined. It copies only the
// fields that have a meaning for the kind. Otherwise a stray value in another field could make two Responses differ.
func merge(reqs []*Request) *Response {
	first := firstOf(reqs)
	resp := &Response{
		Type:      first.Type,
		DType:     first.DType,
		Name:      first.Name,
		Device:    memoryOf(reqs),
		Prescale:  1,
		Postscale: 1,
		Group:     first.Group,
		GroupSize: first.GroupSize,
		Alone:     slices.ContainsFunc(reqs, func(r *Request) bool { return r != nil && r.Alone }),
		Joined:    absentOf(reqs),
		Card:      NoCard,
	}
	d := first.Type.Describe()
	resp.ReduceOp = first.Type.Agreed(first.ReduceOp)
	if d.Has(operation.Shape) {
		resp.Shape = first.Shape
	}
	if d.Has(operation.Factors) {
		resp.Prescale, resp.Postscale = first.Prescale, first.Postscale
	}
	if d.Has(operation.Wire) {
		resp.Wire = first.Wire
	}
	if d.Has(operation.Root) || d.Has(operation.Set) || d.Has(operation.Table) {
		resp.Root = first.Root
	}
	if d.Has(operation.Tail) {
		resp.Shape = slices.Clone(first.Shape)
		resp.Shape[0] = 0
	}
	if d.Output == operation.OfAll { // how many rows an alltoall moves is settled on the data path
		resp.FirstDims = make([]int64, len(reqs))
		for i, r := range reqs {
			if r != nil {
				resp.FirstDims[i] = r.Shape[0]
				resp.Shape[0] += r.Shape[0]
			}
		}
	}
	return resp
}

// answers reports whether r answers q: whether q is equal to the Request of member that led to r. It is false for a
// refusal, and for a Response to be executed alone.
func (r *Response) answers(q *Request, member int) bool {
	if q.Type != r.Type || q.DType != r.DType || !allows(r.Device, q.Device) || q.Name != r.Name ||
		q.Group != r.Group || q.GroupSize != r.GroupSize || q.Refused != "" || q.Alone && !r.Alone {
		return false
	}
	d := r.Type.Describe()
	if !d.Repeats {
		return false
	}
	if d.Has(operation.Factors) && !(sameFactor(q.Prescale, r.Prescale) && sameFactor(q.Postscale, r.Postscale)) {
		return false
	}
	return (!d.Has(operation.Op) || q.ReduceOp == r.ReduceOp) &&
		(!d.Has(operation.Wire) || q.Wire == r.Wire) &&
		(!d.Has(operation.Root) && !d.Has(operation.Table) || q.Root == r.Root) &&
		r.hasShapeOf(q, d, member)
}

// hasShapeOf reports whether r has the shape that member has asked for in q, as far as member knows it.
func (r *Response) hasShapeOf(q *Request, d *operation.Descriptor, member int) bool {
	if d.Has(operation.Shape) {
		return q.Shape.Equal(r.Shape)
	}
	if !d.Has(operation.Tail) {
		return true
	}
	if len(q.Shape) == 0 || len(q.Shape) != len(r.Shape) || !q.Shape[1:].Equal(r.Shape[1:]) {
		return false
	}
	return d.Output != operation.OfAll || member < len(r.FirstDims) && q.Shape[0] == r.FirstDims[member]
}

// Fits reports whether r has the sizes and the kind of memory that member has asked for in q. In an Allgather or
// Alltoall the member knows only its own contribution.
// Response of another rank.
func (r *Response) Fits(q *Request, member int) bool {
	if q.Type != r.Type || !allows(r.Device, q.Device) {
		return false
	}
	d := r.Type.Describe()
	if d.Role != operation.Collective {
		return true // it has no tensor
	}
	return q.DType == r.DType && r.hasShapeOf(q, d, member)
}

// request undoes merge: it returns the Request that member meant when it marked this Response's card.
func (r *Response) request(member int) *Request {
	q := &Request{
		Type:      r.Type,
		DType:     r.DType,
		ReduceOp:  r.ReduceOp,
		Wire:      r.Wire,
		Name:      r.Name,
		Root:      r.Root,
		Device:    r.Device,
		Shape:     r.Shape,
		Prescale:  r.Prescale,
		Postscale: r.Postscale,
		Group:     r.Group,
		GroupSize: r.GroupSize,
		Alone:     r.Alone,
	}
	if r.Type.Describe().Output == operation.OfAll {
		q.Shape = slices.Clone(r.Shape)
		q.Shape[0] = r.FirstDims[member]
	}
	return q
}

// repeats reports whether r says the same as o, their cards aside.
func (r *Response) repeats(o *Response) bool {
	return r.Type == o.Type && r.Err == o.Err && r.DType == o.DType && r.ReduceOp == o.ReduceOp && r.Wire == o.Wire &&
		r.Name == o.Name && r.Root == o.Root && r.Device == o.Device &&
		r.Shape.Equal(o.Shape) && slices.Equal(r.FirstDims, o.FirstDims) &&
		r.Group == o.Group && r.GroupSize == o.GroupSize && r.Alone == o.Alone && slices.Equal(r.Joined, o.Joined) &&
		sameFactor(r.Prescale, o.Prescale) && sameFactor(r.Postscale, o.Postscale)
}

// repeats reports whether r and o are equal in every field.
func (r *Request) repeats(o *Request) bool {
	return r.Type == o.Type && r.DType == o.DType && r.ReduceOp == o.ReduceOp && r.Wire == o.Wire &&
		r.Name == o.Name && r.Root == o.Root && r.Device == o.Device && r.Shape.Equal(o.Shape) &&
		r.Group == o.Group && r.GroupSize == o.GroupSize && slices.Equal(r.Ranks, o.Ranks) &&
		r.Refused == o.Refused && r.Alone == o.Alone &&
		sameFactor(r.Prescale, o.Prescale) && sameFactor(r.Postscale, o.Postscale)
}

func sameKind(a, b int32) bool { return (a == CPUDevice) == (b == CPUDevice) }

// memoryOf is the Device of a Response to Requests for one kind of memory.
func memoryOf(reqs []*Request) int32 {
	device := int32(CPUDevice)
	for _, r := range reqs {
		if r != nil {
			device = max(device, r.Device)
		}
	}
	return device
}

// allows reports whether a member that has asked for memory of a kind can execute a Response about memory of another.
func allows(response, request int32) bool { return sameKind(response, request) && request <= response }

// sameFactor compares the factors bit by bit, so that a NaN agrees with itself.
func sameFactor(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
