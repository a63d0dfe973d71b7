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

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/reduce"
)

// operation is the collective that a lane runs: one nonblocking call of MPI, or several, one after the other, for the
// pieces of a long one. The same struct serves all operations of a lane.
//
// The tensors' memory is pinned while MPI uses it, because it may be Go's. Lists that MPI reads are in C's memory.
type operation struct {
	lane    *Lane
	running bool
	what    uint32
	in, out []byte
	dt      tensor.DType
	reduce  tensor.ReduceOp
	scale   float64
	root    int
	piece   int // bytes in one call; 0: all bytes
	done    int // bytes that have been handed to MPI

	posted  bool // a call is under way
	request C.uintptr_t
	memory  runtime.Pinner
	scratch []byte // a copy of an input that is in the output; kept

	counts, places, recvCounts, recvPlaces ints

	// For an alltoall. It begins with an agreement on whether it can be a collective of MPI.
	agree                bool
	agreeing             bool
	most                 ints // the agreed value, and this member's
	sendBytes, recvBytes []int64
	messages             sent // the operation in place of a call that cannot be made
}

func (o *operation) init(l *Lane) {
	n := l.communicator.size
	*o = operation{lane: l, counts: newInts(n), places: newInts(n), recvCounts: newInts(n), recvPlaces: newInts(n),
		most: newInts(2)}
}

// free frees C's memory. No operation may be running.
func (o *operation) free() {
	for _, p := range []*ints{&o.counts, &o.places, &o.recvCounts, &o.recvPlaces, &o.most} {
		p.free()
		*p = nil
	}
}

// begin makes o the operation of the lane. The first Advance calls MPI.
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

// reduces takes the arguments of a reduction from a.
func (o *operation) reduces(a *collective.Arguments) {
	o.dt, o.reduce, o.scale = a.DType, a.Reduce, a.Postscale
}

// end gives the memory back to the caller.
func (o *operation) end() {
	o.memory.Unpin()
	o.running, o.in, o.out = false, nil, nil
	o.lane.moved++
}

// Advance posts the next call, and tests the posted one. It never waits, not even for another thread that calls MPI.
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
		// The memory stays pinned until the end of the alltoall of messages, too.
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

// advance is Advance while the library is locked; done: no more calls are to be made.
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

// apart returns in, or a copy if in is the same memory as out. MPI has operations in place, too, but then all members
// must ask for that, and each knows only whether it could itself.
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

// nowhere is the address for memory without bytes, because some libraries refuse NULL.
var nowhere = C.calloc(1, 64)

// address returns the address of p, which it pins.
func address(p []byte) C.uintptr_t {
	at := nowhere
	if len(p) > 0 {
		at = unsafe.Pointer(unsafe.SliceData(p))
	}
	return C.uintptr_t(uintptr(at))
}

// deal sets counts and places for the members' parts of a buffer, and returns the buffer's length. ok is false if that
// is beyond the limit, or if there is not one entry for each member.
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

// bytesOf views s as bytes, in the processor's order.
func bytesOf(s []int64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 8*len(s))
}

// reducer returns the operation of MPI for an element type: the library's own if it has the bits of package reduce
// (apart from the payload of a NaN), otherwise one that calls package reduce. Libraries differ: Open MPI's sums of 8
// and 16 bits saturate instead of wrapping (4.1.4 on AVX), MPICH's minima of unsigned integers compare them as signed
// (4.0.2), and minima of NaNs and of zeros are not the same everywhere. The caller holds mu.
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
		// The other arguments are in call already.
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
