package negotiate

import (
	"github.com/gorovod/gorovod/internal/base/operation"
	"github.com/gorovod/gorovod/internal/base/tensor"
)

// Batch is executed as one collective. The fields before Responses are common to all its Responses. A Response with an
// Err has a Batch of its own.
type Batch struct {
	Type                operation.Kind
	DType               tensor.DType
	ReduceOp            tensor.ReduceOp
	Wire                tensor.Wire
	Prescale, Postscale float64
	Responses           []*Response // at least one, in log order
	Places              []int       // of Responses, in the batch of the log
	Bytes               int64       // the sum of the tensors' sizes, whole ones, without any padding
	// Result, if not nil, is the result of the one Response: it came in the log, so nothing is left to move.
	Result []byte
}

// maxOpen is how many kinds of tensors Fuse gathers at the same time.
const maxOpen = 8

// FuseOptions restricts what Fuse joins.
type FuseOptions struct {
	// Groups keeps groups apart: a Response joins only those of its own group, and a Response without a group only
	// others without.
	Groups bool
	// Results are the results of the Responses, by place, that have come with them; nil for the others. A nil slice
	// stands for no results.
	Results [][]byte
}

// Fuse appends to dst the plan for rs, a batch of the lane's log: which Responses are executed together, and in which
// order.
//   - Operations that fuse (operation.Descriptor.Fuses) join others of their kind while their bytes stay within
//     threshold, even if other Responses stand between them. Of an Allgather the bytes of its output count.
//   - A Batch stands in the place of its first Response.
//   - A tensor is alone if it is larger than threshold, if its Response says so, if threshold is 0, or if it has a
//     result.
//
// The plan depends only on the arguments, so all members have the same.
//
// Fuse reuses the memory behind dst, up to its capacity: with plan = Fuse(plan[:0], …) it stops allocating.
func Fuse(dst []Batch, rs []*Response, threshold int64, o FuseOptions) []Batch {
	// The Batches that may still grow, at most one of a kind. If there are too many kinds, the Batch that was opened
	// first is closed.
	var open [maxOpen]int
	var opened int
next:
	for place, r := range rs {
		size, err := byteSize(r.Shape, r.DType)
		if o.Results != nil && o.Results[place] != nil {
			dst = appendBatch(dst, r, place, size)
			dst[len(dst)-1].Result = o.Results[place]
			continue
		}
		if err != nil || threshold <= 0 || size > threshold || !fusable(r) {
			dst = appendBatch(dst, r, place, size)
			continue
		}
		at := opened
		for i := max(0, opened-maxOpen); i < opened; i++ {
			b := &dst[open[i%maxOpen]]
			if !sameBatch(b.Responses[0], r, o) {
				continue
			}
			if b.Bytes+size <= threshold {
				b.Responses, b.Places = append(b.Responses, r), append(b.Places, place)
				b.Bytes += size
				continue next
			}
			at = i // full: the new Batch takes its place
			break
		}
		open[at%maxOpen] = len(dst)
		opened = max(opened, at+1)
		dst = appendBatch(dst, r, place, size)
	}
	return dst
}

// fusable reports whether r can share a collective with others of its kind.
func fusable(r *Response) bool {
	return r.Type.Describe().Fuses && r.Err == "" && !r.Alone
}

// sameBatch reports whether two fusable Responses are of the same kind.
func sameBatch(a, b *Response, o FuseOptions) bool {
	return a.Type == b.Type && a.DType == b.DType && a.Device == b.Device && a.ReduceOp == b.ReduceOp &&
		a.Wire == b.Wire &&
		(!o.Groups || a.Group == b.Group) &&
		sameFactor(a.Prescale, b.Prescale) && sameFactor(a.Postscale, b.Postscale)
}

// appendBatch appends a Batch of r alone, using the memory of the Batch that
// was there before, if any.
func appendBatch(dst []Batch, r *Response, place int, size int64) []Batch {
	var alone []*Response
	var places []int
	if n := len(dst); n < cap(dst) {
		b := &dst[:n+1][n]
		alone, places = b.Responses[:0], b.Places[:0]
	}
	return append(dst, Batch{
		Type:      r.Type,
		DType:     r.DType,
		ReduceOp:  r.ReduceOp,
		Wire:      r.Wire,
		Prescale:  r.Prescale,
		Postscale: r.Postscale,
		Responses: append(alone, r),
		Places:    append(places, place),
		Bytes:     size,
	})
}
