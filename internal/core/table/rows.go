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
	early  int // the place, from a row's first byte on, of the last byte that is to be read early
	shift  int // 1<<shift rows are in a slab
	slabs  [][]byte
	n      int    // of rows that there are
	used   int    // of rows whose memory has been used
	vacant uint32 // 1 + the number of the row removed last, in whose header's low is that of the one before; 0: none
}

// header begins a row. All of it has 4 bytes, since a row's length is a multiple of 8 only with its padding.
type header struct {
	low, high uint32 // the key
	pulls     uint32 // how many pulls have asked for the row to train it; it stays at its highest number
	last      uint32 // Table.steps at the last pull or update
	// mark is the Table.round of the last pull that was counted, or the place of the row's sum in the last Update,
	// which is less. It counts as a place only if Update.ids has the row there.
	mark uint32
}

func (h *header) key() int64 { return int64(uint64(h.high)<<32 | uint64(h.low)) }

const (
	headerBytes = int(unsafe.Sizeof(header{}))
	// slabTarget is the size of a slab in bytes, at most. Memory that no row has used yet costs nothing.
	slabTarget = 16 << 20
)

func newRows(dim, states int) rows {
	stride := (headerBytes + 4*(dim+states) + 7) &^ 7
	return rows{dim: dim, states: states, stride: stride, early: min(mostEarly, headerBytes+4*dim) - 1,
		shift: bits.Len(uint(max(1, slabTarget/stride))) - 1}
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

// state returns the optimizer's numbers of a row.
func (r *rows) state(h *header) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(h), headerBytes+4*r.dim)), r.states)
}

// add makes a row, whose memory is zero.
func (r *rows) add() (uint32, error) {
	if r.vacant > 0 {
		id := r.vacant - 1
		h := r.at(id)
		r.vacant = h.low
		clear(unsafe.Slice((*byte)(unsafe.Pointer(h)), r.stride))
		r.n++
		return id, nil
	}
	if r.used >= MaxRows {
		return 0, fmt.Errorf("this rank has %d rows, the most that are possible; use more ranks", r.n)
	}
	if r.used == len(r.slabs)<<r.shift {
		slab, err := newSlab(r.slabBytes(), len(r.slabs) > 0)
		if err != nil {
			return 0, fmt.Errorf("no memory for more than %d rows, %d MiB: %w", r.n,
				len(r.slabs)*r.slabBytes()>>20, err)
		}
		r.slabs = append(r.slabs, slab)
	}
	r.n++
	r.used++
	return uint32(r.used - 1), nil
}

// remove takes a row away, which the index has no more. Its memory is used again.
func (r *rows) remove(id uint32) {
	r.at(id).low, r.vacant = r.vacant, id+1
	r.n--
}

func (r *rows) free() {
	for _, slab := range r.slabs {
		freeSlab(slab)
	}
	r.slabs, r.n, r.used, r.vacant = nil, 0, 0, 0
}
