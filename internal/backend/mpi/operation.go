//go:build cgo && linux

package mpi

/*
#include <stdlib.h>
#include "libmpi.h"
*/
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/gorovod/gorovod/internal/collective"
	"github.com/gorovod/gorovod/internal/reduce"
	"github.com/gorovod/gorovod/internal/tensor"
)

// operation is the collective that a lane runs: one nonblocking call of MPI, or several, one after
// the other, for the pieces of a long one. The same struct serves all of a lane's.
//
// The tensors' memory is pinned while MPI has it, since it may be Go's; lists that MPI reads are in C's.
type operation struct {
	lane    *Lane
	running bool
	what    uint32
	in, out []byte
	dt      tensor.DType
	reduce  tensor.ReduceOp
	scale   float64
	root    int
	piece   int // bytes of a call; 0: all
	done    int // bytes that have been handed to MPI

	posted  bool // a call is under way
	request C.uintptr_t
	memory  runtime.Pinner
	scratch []byte // a copy of an input that is in the output; kept

	counts, places, recvCounts, recvPlaces ints

	// Of an alltoall, which begins with an agreement on whether it can be one of MPI's.
	agree                bool
	agreeing             bool
	most                 ints // what is agreed, and what this member says
	sendBytes, recvBytes []int64
	messages             sent // what is done in place of a call that cannot be made
}

func (o *operation) init(l *Lane) {
	n := l.communicator.size
	*o = operation{lane: l, counts: newInts(n), places: newInts(n), recvCounts: newInts(n), recvPlaces: newInts(n),
		most: newInts(2)}
}

// free gives back C's memory. Nothing may be running.
func (o *operation) free() {
	for _, p := range []*ints{&o.counts, &o.places, &o.recvCounts, &o.recvPlaces, &o.most} {
		p.free()
		*p = nil
	}
}

// begin makes it the operation of the lane; MPI is called by the first Advance.
func (o *operation) begin(what uint32, in, out []byte) *operation {
	if o.running {
		panic("mpi: an operation is started while another one runs on the same lane")
	}
	o.running, o.what, o.in, o.out = true, what, in, out
	o.agree, o.agreeing, o.posted, o.done, o.piece, o.scale = false, false, false, 0, 0, 1
	if len(in) > 0 {
		o.memory.Pin(unsafe.SliceData(in))
	}
	if len(out) > 0 {
		o.memory.Pin(unsafe.SliceData(out))
	}
	return o
}

// reduces takes what a says of a reduction.
func (o *operation) reduces(a *collective.Arguments) {
	o.dt, o.reduce, o.scale = a.DType, a.Reduce, a.Postscale
}

// end makes the memory the caller's again.
func (o *operation) end() {
	o.memory.Unpin()
	o.running, o.in, o.out = false, nil, nil
	o.lane.moved++
}

// Advance posts what is to be posted, and tests what has been. It never waits, not even for
// another thread that calls MPI.
func (o *operation) Advance() (bool, error) {
	if o.messages.Op != nil {
		return o.advanceMessages()
	}
	lib := o.lane.communicator.library
	if !lib.mu.TryLock() {
		return false, lib.Err()
	}
	done, err := o.advance(lib)
	lib.mu.Unlock()
	switch {
	case err != nil:
		lib.lose(err)
		return false, err
	case !done:
		return false, nil
	case o.agree && o.most[0] != 0:
		// The alltoall of messages pins the same memory no less: it is kept until the end.
		o.messages = sent{o.lane.overMessages.Alltoall(o.in, o.sendBytes, o.out, o.recvBytes), o.lane.messages}
		return o.advanceMessages()
	}
	if o.scale != 1 {
		reduce.Scale(o.dt, o.out, o.out, o.scale)
	}
	o.end()
	return true, nil
}

func (o *operation) advanceMessages() (bool, error) {
	done, err := o.messages.Advance()
	if done {
		o.end()
	}
	return done, err
}

// advance is Advance while the library is locked; done: nothing more is to be called.
func (o *operation) advance(lib *Library) (done bool, err error) {
	for {
		if o.posted {
			lib.call.request = o.request
			if err := lib.do(C.GV_Test); err != nil {
				return false, err
			}
			if o.request = lib.call.request; lib.call.result == 0 {
				return false, nil
			}
			o.posted = false
			o.lane.moved++
			switch {
			case o.agreeing:
				o.agreeing = false
				if o.most[0] != 0 {
					return true, nil
				}
			case o.piece == 0 || o.done == len(o.out):
				return true, nil
			}
		}
		if err := o.post(lib); err != nil {
			return false, err
		}
		o.posted = true
		o.lane.moved++
	}
}

// post makes the next call.
func (o *operation) post(lib *Library) error {
	c := lib.call
	c.comm, c.request, c.in, c.out, c.dtype = o.lane.communicator.handle, 0, 0, 0, lib.functions.byte
	c.counts, c.places, c.recv_counts, c.recv_places = o.counts.c(), o.places.c(), o.recvCounts.c(), o.recvPlaces.c()
	what := o.what
	if o.agree && !o.agreeing && o.done == 0 {
		o.agreeing, o.done = true, 1
		c.in, c.out, c.count = C.uintptr_t(uintptr(unsafe.Pointer(&o.most[1]))),
			C.uintptr_t(uintptr(unsafe.Pointer(&o.most[0]))), 1
		c.dtype, c.op = lib.functions.dtype[tensor.Int32], lib.functions.op[tensor.Max]
		err := lib.do(C.GV_Iallreduce)
		o.request = c.request
		return err
	}
	switch what {
	case C.GV_Ireduce_scatter, C.GV_Iallreduce:
		op, err := lib.reducer(o.dt, o.reduce)
		if err != nil {
			return err
		}
		c.dtype, c.op = lib.functions.dtype[o.dt], op
	}
	in, out := o.in, o.out
	if o.piece > 0 {
		end := min(o.done+o.piece, len(o.out))
		out = o.out[o.done:end]
		if in != nil {
			in = o.in[o.done:end]
		}
		o.done = end
	}
	c.out = address(out)
	switch what {
	case C.GV_Iallreduce:
		c.in, c.count = address(o.apart(in, out)), C.int64_t(len(out)/o.dt.Size())
	case C.GV_Ibcast:
		c.count, c.peer = C.int64_t(len(out)), C.int(o.root)
	case C.GV_Iallgatherv:
		c.in, c.count = address(o.apart(in, out[o.places[o.lane.communicator.rank]:])), C.int64_t(len(in))
	default:
		c.in = address(in)
	}
	err := lib.do(what)
	o.request = c.request
	return err
}

// apart is in, or a copy of it where it is the same memory as out. MPI knows operations in place, too, but then
// all members must ask for it, and whether they could is each one's own knowledge.
func (o *operation) apart(in, out []byte) []byte {
	if len(in) == 0 || &in[0] != &out[0] {
		return in
	}
	if len(o.scratch) < len(in) {
		o.scratch = make([]byte, len(in))
	}
	if o.done <= len(in) { // the first piece, or the only one
		o.memory.Pin(unsafe.SliceData(o.scratch))
	}
	copy(o.scratch, in)
	return o.scratch[:len(in)]
}

// nowhere is the address of what has no bytes, since some libraries do not take NULL for one.
var nowhere = C.calloc(1, 64)

// address is where p is. It is pinned.
func address(p []byte) C.uintptr_t {
	at := nowhere
	if len(p) > 0 {
		at = unsafe.Pointer(unsafe.SliceData(p))
	}
	return C.uintptr_t(uintptr(at))
}

// deal makes counts and places of what each member has in a buffer of all, and its length. Not
// ok: it is beyond the limit, or there is not one for each member.
func deal(counts, places ints, bytes []int64) (total int, ok bool) {
	if len(bytes) != len(counts) {
		return 0, false
	}
	for m, n := range bytes {
		if n < 0 || n > int64(limit-total) {
			return 0, false
		}
		counts[m], places[m] = int32(n), int32(total)
		total += int(n)
	}
	return total, true
}

func badReduction(a *collective.Arguments) bool {
	return reduce.Check(a.DType, a.Reduce) != nil || reduce.CheckScale(a.DType, a.Postscale) != nil
}

// bytesOf is s as bytes, in the processor's order.
func bytesOf(s []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 8*len(s))
}

// reducer is the operation of MPI for an element type: the library's own where it has the bits of package
// reduce, but for what is inside a NaN; else one that calls package reduce. Of the types that MPI has,
// Open MPI's sums of 8 and 16 bits saturate instead of wrapping (4.1.4 on AVX), MPICH's minima of unsigned
// ones compare them as signed (4.0.2), and minima of NaN and of zeros are not the same everywhere.
// The caller holds mu.
func (l *Library) reducer(dt tensor.DType, op tensor.ReduceOp) (C.uintptr_t, error) {
	switch dt {
	case tensor.Int32, tensor.Int64:
		return l.functions.op[op], nil
	case tensor.Float32, tensor.Float64:
		if op == tensor.Sum || op == tensor.Product {
			return l.functions.op[op], nil
		}
	}
	if l.reducers[dt][op] == 0 {
		// Other arguments are in call already.
		l.call.dtype_number, l.call.op_number = C.int(dt), C.int(op)
		if err := l.do(C.GV_Op_create); err != nil {
			return 0, err
		}
		l.reducers[dt][op] = l.call.made
	}
	return l.reducers[dt][op], nil
}

//export goMPIReduce
func goMPIReduce(dt, op C.int, in, inout unsafe.Pointer, count C.int) {
	n := int(count) * tensor.DType(dt).Size()
	dst := unsafe.Slice((*byte)(inout), n)
	reduce.Reduce(tensor.DType(dt), tensor.ReduceOp(op), dst, [][]byte{unsafe.Slice((*byte)(in), n), dst}, 1)
}
