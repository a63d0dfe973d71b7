package collective

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// Adasum combines data in place, on all members, by Adasum's rule (Maleki et al., arXiv:2006.02924), one part after the
// other, and multiplies it by scale. A part is a tensor of a fused buffer. lengths holds the parts' lengths in bytes.
// They add up to len(data), and are the same on all members. The operation does not keep lengths. The types are the
// floats.
//
// All members get the same bits. These depend neither on the transport nor on the other parts. See the type adasum for
// the order.
func (l *Lane) Adasum(dt tensor.DType, data []byte, lengths []int, scale float64) Op {
	switch dt {
	case tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64:
	default:
		return l.refuse("adasum: elements of type %v are not floats", dt)
	}
	total := 0
	for i, n := range lengths {
		if n < 0 || n > len(data)-total {
			return l.refuse("adasum: part %d of %d bytes is beyond the %d of the data", i, n, len(data))
		}
		if n%dt.Size() != 0 {
			return l.refuse("adasum: part %d of %d bytes is not whole elements of %v", i, n, dt)
		}
		total += n
	}
	switch {
	case total != len(data):
		return l.refuse("adasum: parts of %d bytes, data of %d", total, len(data))
	case len(data) == 0:
		return l.done()
	case l.size == 1:
		l.begin()
		return l.allreduceLocal.start(l, l.whole(reduction{dt: dt, op: tensor.Sum, in: data, out: data, scale: scale}))
	}
	return l.adasum.start(l, dt, data, lengths, scale)
}

// adasum combines the members' vectors in a tree, by the rule of products.coefficients. Let p be the largest power of
// two that is at most size. The members from p on are folded in first: member p+i is the second operand of member i.
// Then groups whose numbers differ in bit 0, 1, … combine: member i with i+1, then the result of i and i+1 with that of
// i+2 and i+3, the lower one first.
//
// The coefficients of a pair depend on whole parts. So a level cannot start before the level below is complete on all
// members. But once the members have dealt out the data, one member can do all combinations of an element:
//
//	deal     an alltoall gives each member its piece of all members' vectors
//	level    each member computes the dot products of its piece for all pairs of the level; an allgather gives all
//	         of them to all members; each member derives the coefficients and combines its piece
//	collect  an allgather of the resulting pieces
//
// A dot product is summed in float64, by reduce.Dots within blocks of a part, then in the order of the blocks. Pieces
// consist of whole blocks, so the bits do not depend on the member that computes a block. Elements are combined in
// float64, and rounded once a level. The last level applies the scale.
//
// Steps: an alltoall, log2(size) allgathers, rounded up, of little data, and one allgather. Bytes: each member sends
// and receives 2n(size-1)/size and the dot products, and combines about n. Memory: n, and the dot products of a level,
// 24 bytes a pair and block. The lane keeps it. Always chosen for more than one member.
type adasum struct {
	lane    *Lane
	dt      tensor.DType
	data    []byte
	scale   float64
	sizes   []int // of the parts, in bytes
	running Op    // the exchange under way
	level   int   // the level whose dot products it carries; -1: deals; levels: collects
	levels  int

	lengths []int64    // size entries: bytes of each member's piece
	starts  []int      // size+1 entries: where each piece starts in data
	blocks  []int      // size+1 entries: the number of each piece's first block
	first   adasumPart // the first one that reaches into this member's piece

	vectors  []byte  // this member's piece of each member's vector
	products []byte  // by member, pair and block: three float64
	counts   []int64 // size entries: bytes of each member's products
}

// adasumPart is one of adasum's parts, with its place.
type adasumPart struct {
	index  int
	start  int // in the data
	end    int
	block  int // the number of its first block, counted over all parts
	blocks int
}

const (
	// blockElements is the least length of a block with dot products of its own. Such a block is hundreds of times as
	// long as its products.
	blockElements = 1024
	// maxBlocks is the most blocks of a part, so that a large part has few dot products.
	maxBlocks = 512

	productBytes = 3 * 8
)

func (a *adasum) init(size int) {
	a.lengths = make([]int64, size)
	a.starts = make([]int, size+1)
	a.blocks = make([]int, size+1)
	a.counts = make([]int64, size)
}

func (a *adasum) start(l *Lane, dt tensor.DType, data []byte, lengths []int, scale float64) Op {
	a.lane, a.dt, a.data, a.scale = l, dt, data, scale
	a.sizes = append(a.sizes[:0], lengths...)
	rounds := bits.Len(uint(l.size)) - 1
	a.level, a.levels = -1, rounds
	if l.size > 1<<rounds {
		a.levels++
	}
	a.cut()
	own := int(a.lengths[l.rank])
	memory := l.temporary(l.size*own + l.size/2*a.blocks[l.size]*productBytes)
	a.vectors, a.products = memory[:l.size*own], memory[l.size*own:]
	for m := range l.each {
		l.each[m] = int64(own)
	}
	a.running = l.Alltoall(data, a.lengths, a.vectors, l.each)
	return a
}

func (a *adasum) Advance() (bool, error) {
	for {
		if done, err := a.running.Advance(); !done || err != nil {
			return done, err
		}
		if a.level == a.levels {
			return true, nil
		}
		if a.level >= 0 {
			a.combine()
		}
		a.level++
		if a.level == a.levels {
			a.running = a.lane.Allgather(a.vector(0), a.data, a.lengths)
		} else {
			a.running = a.multiply()
		}
	}
}

// pairs says which vectors the level combines: for each i below count, vector i×stride and the vector at distance after
// it. The first one holds the result.
func (a *adasum) pairs() (count, stride, distance int) {
	size, level := a.lane.size, a.level
	power := 1 << (bits.Len(uint(size)) - 1)
	if size > power {
		if level == 0 {
			return size - power, 1, power
		}
		level--
	}
	return power >> (level + 1), 2 << level, 1 << level
}

// vector is this member's piece of vector v.
func (a *adasum) vector(v int) []byte {
	own := int(a.lengths[a.lane.rank])
	return a.vectors[v*own:][:own:own]
}

// cut deals the blocks out: a piece starts with the first block that starts at
// its share of the data or after it.
func (a *adasum) cut() {
	l, n := a.lane, len(a.data)
	m := 0
	s := a.part(0, 0, 0)
	for ; s.index < len(a.sizes); s = a.after(s) {
		for b := range s.blocks {
			at, _ := a.block(s, s.block+b)
			for ; m < l.size && at >= n/l.size*m; m++ {
				a.starts[m], a.blocks[m] = at, s.block+b
				if m == l.rank {
					a.first = s
				}
			}
		}
	}
	for ; m <= l.size; m++ {
		a.starts[m], a.blocks[m] = n, s.block
		if m == l.rank {
			a.first = s
		}
	}
	for m := range l.size {
		a.lengths[m] = int64(a.starts[m+1] - a.starts[m])
	}
}

// part returns the part with the given index, start and first block. The part after the last one is empty.
func (a *adasum) part(index, start, block int) adasumPart {
	s := adasumPart{index: index, start: start, end: start, block: block}
	if index < len(a.sizes) {
		s.end += a.sizes[index]
		s.blocks = ceilDiv(s.end-s.start, a.blockBytes(s))
	}
	return s
}

func (a *adasum) after(s adasumPart) adasumPart {
	return a.part(s.index+1, s.end, s.block+s.blocks)
}

// blockBytes is the length of all blocks of s but the last.
func (a *adasum) blockBytes(s adasumPart) int {
	size := a.dt.Size()
	return size * max(blockElements, ceilDiv((s.end-s.start)/size, maxBlocks))
}

// block is the range of bytes of data of block number b, a block of s.
func (a *adasum) block(s adasumPart, b int) (lo, hi int) {
	length := a.blockBytes(s)
	lo = s.start + (b-s.block)*length
	return lo, min(lo+length, s.end)
}

// product is the place in a.products for the products of block b of a pair of the level. b is a block of member m.
func (a *adasum) product(m, pair, b int) []byte {
	count, _, _ := a.pairs()
	at := count*a.blocks[m] + pair*(a.blocks[m+1]-a.blocks[m]) + b - a.blocks[m]
	return a.products[at*productBytes:][:productBytes]
}

// multiply computes this member's products of the level and starts their
// exchange.
func (a *adasum) multiply() Op {
	rank := a.lane.rank
	start, end := a.starts[rank], a.starts[rank+1]
	count, stride, distance := a.pairs()
	for pair := range count {
		x, y := a.vector(pair*stride), a.vector(pair*stride+distance)
		for s := a.first; s.start < end; s = a.after(s) {
			for b := max(s.block, a.blocks[rank]); b < min(s.block+s.blocks, a.blocks[rank+1]); b++ {
				lo, hi := a.block(s, b)
				var d products
				d.xy, d.xx, d.yy = reduce.Dots(a.dt, x[lo-start:hi-start], y[lo-start:hi-start])
				d.store(a.product(rank, pair, b))
			}
		}
	}
	for m := range a.counts {
		a.counts[m] = int64(count * (a.blocks[m+1] - a.blocks[m]) * productBytes)
	}
	a.lane.moved++
	lo, hi := count*a.blocks[rank]*productBytes, count*a.blocks[rank+1]*productBytes
	return a.lane.Allgather(a.products[lo:hi], a.products[:count*a.blocks[a.lane.size]*productBytes], a.counts)
}

// combine makes this member's piece of the level's results.
func (a *adasum) combine() {
	rank := a.lane.rank
	start, end := a.starts[rank], a.starts[rank+1]
	count, stride, distance := a.pairs()
	for pair := range count {
		x, y := a.vector(pair*stride), a.vector(pair*stride+distance)
		for s := a.first; s.start < end; s = a.after(s) {
			lo, hi := max(s.start, start)-start, min(s.end, end)-start
			if lo >= hi {
				continue
			}
			cx, cy := a.sum(s, pair).coefficients()
			if a.level == a.levels-1 {
				cx, cy = cx*a.scale, cy*a.scale
			}
			reduce.Blend(a.dt, x[lo:hi], y[lo:hi], cx, cy)
		}
	}
	a.lane.moved++
}

// sum adds up the products of the blocks of s.
func (a *adasum) sum(s adasumPart, pair int) (total products) {
	m := 0
	for b := s.block; b < s.block+s.blocks; b++ {
		for b >= a.blocks[m+1] {
			m++
		}
		total.add(a.product(m, pair, b))
	}
	return total
}

// products are the dot products of two vectors x and y.
type products struct{ xy, xx, yy float64 }

func (d products) store(p []byte) {
	binary.NativeEndian.PutUint64(p, math.Float64bits(d.xy))
	binary.NativeEndian.PutUint64(p[8:], math.Float64bits(d.xx))
	binary.NativeEndian.PutUint64(p[16:], math.Float64bits(d.yy))
}

// add adds the products that store has written to p.
func (d *products) add(p []byte) {
	d.xy += math.Float64frombits(binary.NativeEndian.Uint64(p))
	d.xx += math.Float64frombits(binary.NativeEndian.Uint64(p[8:]))
	d.yy += math.Float64frombits(binary.NativeEndian.Uint64(p[16:]))
}

// tinyNorm is the square root of the smallest normal float64: a vector with a
// smaller squared norm counts as zero.
const tinyNorm = 0x1p-511

// coefficients are those of Adasum's rule,
//
//	adasum(x, y) = (1 - x·y / (2|x|²)) x + (1 - x·y / (2|y|²)) y
//
// where the coefficient of a vector of zero is 1.
func (d products) coefficients() (cx, cy float64) {
	cx, cy = 1, 1
	if !(d.xx < tinyNorm) {
		cx = 1 - d.xy/(2*d.xx)
	}
	if !(d.yy < tinyNorm) {
		cy = 1 - d.xy/(2*d.yy)
	}
	return cx, cy
}
