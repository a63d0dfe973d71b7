//go:build cgo && linux

package mpi

/*
#include <stdlib.h>
#include "libmpi.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/gorovod/gorovod/internal/base/guard"
)

// Communicator is a duplicate of one of the program's communicators. Only this package uses it. It lives as long as the
// process.
type Communicator struct {
	library    *Library
	handle     C.uintptr_t
	rank, size int
}

// errNull is the error for the null communicator, which MPI gives to processes outside a new communicator.
var errNull = errors.New("it is MPI_COMM_NULL, the null communicator, which MPI gives to a process that is not in " +
	"the one that was made, and which a freed one is")

// check refuses the null communicator, for which some MPIs end the job by themselves.
func (l *Library) check(handle uintptr) error {
	if handle == uintptr(l.functions.null) {
		return errNull
	}
	return nil
}

// Duplicate makes a Communicator of one of the program's. All processes of that communicator call it, and it blocks
// until all have, or ctx ends.
func (l *Library) Duplicate(ctx context.Context, handle uintptr) (*Communicator, error) {
	if err := l.check(handle); err != nil {
		return nil, err
	}
	place := (*C.uintptr_t)(C.calloc(1, C.sizeof_uintptr_t))
	l.mu.Lock()
	l.call.comm, l.call.out, l.call.request = C.uintptr_t(handle), C.uintptr_t(uintptr(unsafe.Pointer(place))), 0
	err := l.do(C.GV_Comm_idup)
	request := l.call.request
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := l.await(ctx, request); err != nil {
		return nil, err // place is not freed, because MPI may still write there
	}
	defer C.free(unsafe.Pointer(place))
	c, err := l.communicator(*place)
	if err == nil && handle == l.World() {
		err = l.agree(ctx, c)
	}
	return c, err
}

// Subset makes a Communicator of some processes of one of the program's, given by their ranks there, this process among
// them. All of these call it, and it blocks until all have, or ctx ends.
func (l *Library) Subset(ctx context.Context, handle uintptr, ranks []int) (*Communicator, error) {
	l.mu.Lock()
	l.call.comm = C.uintptr_t(handle)
	err := l.do(C.GV_Comm_rank)
	rank := int(l.call.result)
	if err == nil {
		err = l.do(C.GV_Comm_size)
	}
	size := int(l.call.result)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for i, r := range ranks {
		if r < 0 || r >= size || slices.Contains(ranks[:i], r) {
			return nil, fmt.Errorf("ranks %v of %d: %d is not one of them, or is there twice", ranks, size, r)
		}
	}
	if !slices.Contains(ranks, rank) {
		return nil, fmt.Errorf("ranks %v do not include this process, which is rank %d of %d", ranks, rank, size)
	}
	whole := Communicator{library: l, handle: C.uintptr_t(handle)}
	return whole.group(ctx, subsetTag, ranks)
}

// subsetTag is the tag of Subset. No lane has it.
const subsetTag = 32766

// Free gives the communicator back. All its processes call it, when its lanes are closed. It does nothing if MPI is
// lost. The driver calls it.
func (c *Communicator) Free() {
	l := c.library
	if !l.acquire() {
		return
	}
	defer l.mu.Unlock()
	l.call.comm = c.handle
	if err := l.do(C.GV_Comm_free); err != nil {
		l.lose(err)
	}
}

// communicator returns the Communicator of a handle that this package owns.
func (l *Library) communicator(handle C.uintptr_t) (*Communicator, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &Communicator{library: l, handle: handle}
	l.call.comm = handle
	if err := l.do(C.GV_Comm_set_errhandler); err != nil {
		return nil, err
	}
	if err := l.do(C.GV_Comm_rank); err != nil {
		return nil, err
	}
	c.rank = int(l.call.result)
	if err := l.do(C.GV_Comm_size); err != nil {
		return nil, err
	}
	c.size = int(l.call.result)
	return c, nil
}

// Rank is this process's rank in the communicator.
func (c *Communicator) Rank() int { return c.rank }

// Size is the number of its processes.
func (c *Communicator) Size() int { return c.size }

// Ranks lists the processes of another communicator of the program's, in its order, by their ranks in this one. It
// returns an error if one of them is not in this one, or if MPI is lost. It involves no other process, but waits while
// another thread makes a communicator.
func (c *Communicator) Ranks(handle uintptr) ([]int, error) {
	l := c.library
	if err := l.check(handle); err != nil {
		return nil, err
	}
	if err := l.turn(); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	l.call.comm = C.uintptr_t(handle)
	if err := l.do(C.GV_Comm_size); err != nil {
		return nil, err
	}
	n := int(l.call.result)
	ranks, room := newInts(n), newInts(n)
	defer ranks.free()
	defer room.free()
	l.call.comm, l.call.op, l.call.count = c.handle, C.uintptr_t(handle), C.int64_t(n)
	l.call.counts, l.call.places = ranks.c(), room.c()
	if err := l.do(C.GV_Group_translate_ranks); err != nil {
		return nil, err
	}
	list := make([]int, n)
	for i, r := range ranks {
		if r < 0 {
			return nil, fmt.Errorf("its process %d is not in the first communicator", i)
		}
		list[i] = int(r)
	}
	return list, nil
}

// recordBytes is the most bytes that a process can contribute to Allgather, including 4 for the length.
const recordBytes = 16 << 10

// Allgather returns the bytes of every process, by rank; each contributes at most recordBytes-4. It blocks until all
// have called it, or ctx ends.
func (c *Communicator) Allgather(ctx context.Context, mine []byte) ([][]byte, error) {
	if len(mine) > recordBytes-4 {
		return nil, fmt.Errorf("%d bytes, %d are possible", len(mine), recordBytes-4)
	}
	l := c.library
	all := C.calloc(C.size_t(c.size), recordBytes) // in C's memory, because MPI may use it after this call
	own := C.calloc(1, recordBytes)
	said := unsafe.Slice((*byte)(own), recordBytes)
	said[0], said[1], said[2] = byte(len(mine)), byte(len(mine)>>8), byte(len(mine)>>16)
	copy(said[4:], mine)
	counts, places := newInts(c.size), newInts(c.size)
	for r := range counts {
		counts[r], places[r] = recordBytes, int32(r*recordBytes)
	}
	l.mu.Lock()
	l.call.in, l.call.out, l.call.count, l.call.dtype = C.uintptr_t(uintptr(own)), C.uintptr_t(uintptr(all)),
		recordBytes, l.functions.byte
	l.call.counts, l.call.places, l.call.comm, l.call.request = counts.c(), places.c(), c.handle, 0
	err := l.do(C.GV_Iallgatherv)
	request := l.call.request
	l.mu.Unlock()
	if err == nil {
		err = l.await(ctx, request)
	}
	if err != nil {
		return nil, err
	}
	values := make([][]byte, c.size)
	bytes := unsafe.Slice((*byte)(all), c.size*recordBytes)
	for r := range values {
		record := bytes[r*recordBytes:][:recordBytes]
		n := int(record[0]) | int(record[1])<<8 | int(record[2])<<16
		if n > recordBytes-4 {
			return nil, fmt.Errorf("process %d says %d bytes", r, n)
		}
		values[r] = append([]byte(nil), record[4:4+n]...)
	}
	C.free(all)
	C.free(own)
	counts.free()
	places.free()
	return values, nil
}

var errGroup = errors.New("the processes of the communicator have not met")

// group makes a communicator of some of the processes, given by their ranks. All of these call it. tag distinguishes
// groups that are made at the same time. If ctx ends before all have called it, MPI is lost.
func (c *Communicator) group(ctx context.Context, tag int, ranks []int) (*Communicator, error) {
	l := c.library
	type outcome struct {
		made C.uintptr_t
		err  error
	}
	ended := make(chan outcome, 1)
	list := newInts(len(ranks))
	for i, r := range ranks {
		list[i] = int32(r)
	}
	failed := func(err error) { ended <- outcome{err: err} }
	guard.Go("the making of a communicator", failed, func() { // the call can neither be polled nor cancelled
		l.mu.Lock()
		defer l.mu.Unlock()
		l.call.comm, l.call.counts, l.call.count, l.call.tag = c.handle, list.c(), C.int64_t(len(ranks)), C.int(tag)
		err := l.do(C.GV_Comm_create_group)
		made := l.call.made
		list.free()
		ended <- outcome{made, err}
	})
	select {
	case o := <-ended:
		if o.err != nil {
			return nil, o.err
		}
		return l.communicator(o.made)
	case <-ctx.Done():
		err := fmt.Errorf("%w: %w", errGroup, context.Cause(ctx))
		l.lose(err)
		return nil, err
	}
}

// ints is a list in C's memory, which MPI reads for as long as an operation lasts.
type ints []int32

func newInts(n int) ints {
	return unsafe.Slice((*int32)(C.calloc(C.size_t(max(1, n)), 4)), max(1, n))[:n]
}

func (p ints) c() *C.int { return (*C.int)(unsafe.SliceData(p)) }

func (p ints) free() { C.free(unsafe.Pointer(unsafe.SliceData(p))) }
