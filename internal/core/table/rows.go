package table

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// rows is the memory of a table's rows. They stand one after the other in slabs outside of Go's heap, each as a header,
// the weights, and the optimizer's numbers; no row has a pointer. A row has a number, which never changes.
type rows struct {
	dim    int
	states int // the optimizer's numbers of a row
	stride int // bytes from a row to the next one in a slab
	shift  int // 1<<shift rows are in a slab
	slabs  [][]byte
	n      int
}

// header begins a row. All of it has 4 bytes, since a row's length is a multiple of 8 only with its padding.
type header struct {
	low, high uint32 // the key
	pulls     uint32 // how many times a rank has asked for the row to train it; it stays at its highest number
	last      uint32 // Table.steps at the last pull or update
	mark      uint32 // during an Update: 1 + the place of the row's sum; otherwise 0
}

func (h *header) key() int64 { return int64(uint64(h.high)<<32 | uint64(h.low)) }

const (
	headerBytes = int(unsafe.Sizeof(header{}))
	// slabTarget is the size of a slab in bytes, at most. Memory that no row has used yet costs nothing.
	slabTarget = 16 << 20
)

func newRows(dim, states int) rows {
	stride := (headerBytes + 4*(dim+states) + 7) &^ 7
	return rows{dim: dim, states: states, stride: stride, shift: bits.Len(uint(max(1, slabTarget/stride))) - 1}
}

// slabBytes is the size of a slab.
func (r *rows) slabBytes() int { return r.stride << r.shift }

// at returns the header of a row.
func (r *rows) at(id uint32) *header {
	slab := r.slabs[id>>r.shift]
	return (*header)(unsafe.Pointer(&slab[int(id&(1<<r.shift-1))*r.stride]))
}

// weights returns the weights of a row.
func (r *rows) weights(h *header) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(h), headerBytes)), r.dim)
}

// end returns the bits of a row's last weight.
func (r *rows) end(h *header) uint32 {
	return *(*uint32)(unsafe.Add(unsafe.Pointer(h), headerBytes+4*(r.dim-1)))
}

// state returns the optimizer's numbers of a row.
func (r *rows) state(h *header) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(h), headerBytes+4*r.dim)), r.states)
}

// add makes a row, whose memory is zero.
func (r *rows) add() (uint32, error) {
	if r.n >= MaxRows {
		return 0, fmt.Errorf("this rank has %d rows, the most that are possible; use more ranks", r.n)
	}
	if r.n == len(r.slabs)<<r.shift {
		slab, err := newSlab(r.slabBytes(), len(r.slabs) > 0)
		if err != nil {
			return 0, fmt.Errorf("no memory for more than %d rows, %d MiB: %w", r.n,
				len(r.slabs)*r.slabBytes()>>20, err)
		}
		r.slabs = append(r.slabs, slab)
	}
	r.n++
	return uint32(r.n - 1), nil
}

func (r *rows) free() {
	for _, slab := range r.slabs {
		freeSlab(slab)
	}
	r.slabs, r.n = nil, 0
}
