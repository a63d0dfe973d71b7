//go:build cgo && linux

package mpi

/*
#include "libmpi.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorovod/gorovod/internal/collective"
	"github.com/gorovod/gorovod/internal/tensor"
	"github.com/gorovod/gorovod/internal/transport"
)

// limit is the most bytes that one nonblocking collective of MPI is given, whose counts are ints: longer
// reductions and broadcasts are made of pieces, and other long operations of messages.
var limit = 1 << 30

// SetLimit lowers the bytes of one call of MPI, at least 8, so that tests need no memory for long operations. All
// processes call it, before they open a lane.
func SetLimit(bytes int) { limit = bytes }

// reducePiece is the most that one allreduce is given, so that the copy of an input which is
// the output needs no more memory.
const reducePiece = 64 << 20

// Lane is one member's part in a lane whose data MPI carries, by a communicator of its own. It
// belongs to the lane's driver, as a collective.Lane does.
//
// What MPI does not know, or not as well, is done by the algorithms of the embedded
// Lane over messages of MPI: Adasum, sums that travel in 16 bits, a fixed order of operands
// (Options.Deterministic), and allgathers, alltoalls and reducescatters beyond the limit.
type Lane struct {
	*collective.Lane
	communicator  *Communicator
	messages      *messages
	deterministic bool
	op            operation
	other         sent
	moved         uint64
}

var _ collective.Carrier = (*Lane)(nil)

// OpenLane makes the lane among the processes with these ranks, this one among them, which all
// call it with the same tag. It blocks until they have, or ctx ends.
func (c *Communicator) OpenLane(ctx context.Context, tag int, ranks []int, o collective.Options) (collective.Carrier,
	error) {
	const tags = subsetTag // every MPI allows 32767
	own, err := c.group(ctx, tag%tags, ranks)
	if err != nil {
		return nil, fmt.Errorf("a communicator of ranks %v of MPI: %w", ranks, err)
	}
	m := newMessages(own)
	l := &Lane{Lane: collective.NewLane(&transport.Lane{Comm: m}, o), communicator: own, messages: m,
		deterministic: o.Deterministic}
	l.op.init(l)
	return l, nil
}

// Moved adds what MPI has moved to what the embedded lane has.
func (l *Lane) Moved() uint64 { return l.moved + l.Lane.Moved() }

// Polled reports that nobody rings for this lane: MPI makes progress when it is called.
func (l *Lane) Polled() bool { return true }

// drainTime bounds how long Close waits for the end of an operation that all members have begun.
const drainTime = time.Second

// Close frees the communicator. An operation under way is brought to its end, if it can be:
// MPI could write to its memory at any later time. Else, or with a cause, MPI is lost to this process.
func (l *Lane) Close(cause error) (quiet bool) {
	lib := l.communicator.library
	if cause != nil {
		lib.lose(cause)
	}
	for deadline := time.Now().Add(drainTime); l.running() != nil && lib.Err() == nil; {
		if done, err := l.running().Advance(); err != nil || !done && time.Now().After(deadline) {
			lib.lose(errors.New("a process set was given up amid an operation of MPI"))
		}
	}
	if lib.Err() != nil {
		l.keep()
		return l.running() == nil
	}
	l.communicator.Free()
	l.op.free()
	return true
}

// running is the operation under way, nil for none.
func (l *Lane) running() collective.Op {
	switch {
	case l.op.running:
		return &l.op
	case l.other.Op != nil:
		return &l.other
	}
	return nil
}

// keep lets what an operation under way may still write to live on: its memory is pinned.
func (l *Lane) keep() {
	lib := l.communicator.library
	if lib.mu.TryLock() { // else a goroutine is in MPI for ever, and keeps the library
		lib.kept = append(lib.kept, l)
		lib.mu.Unlock()
	}
}

// AllreduceAs is collective.Lane's.
func (l *Lane) AllreduceAs(w tensor.Wire, dt tensor.DType, op tensor.ReduceOp, in, out []byte,
	scale float64) collective.Op {
	if l.deterministic || w.For(dt, op) != tensor.WireAsIs || len(in) == 0 || len(in) != len(out) ||
		badReduction(dt, op, scale) || len(in)%dt.Size() != 0 {
		return l.overMessages(l.Lane.AllreduceAs(w, dt, op, in, out, scale)) // which also knows what to say of mistakes
	}
	o := l.op.begin(C.GV_Iallreduce, in, out)
	o.dt, o.reduce, o.scale = dt, op, scale
	o.piece = min(limit, reducePiece) / dt.Size() * dt.Size()
	return o
}

// Broadcast is collective.Lane's.
func (l *Lane) Broadcast(root int, buf []byte) collective.Op {
	if root < 0 || root >= l.communicator.size || len(buf) == 0 {
		return l.overMessages(l.Lane.Broadcast(root, buf))
	}
	o := l.op.begin(C.GV_Ibcast, nil, buf)
	o.root, o.piece = root, limit
	return o
}

// Barrier is collective.Lane's.
func (l *Lane) Barrier() collective.Op {
	return l.op.begin(C.GV_Ibarrier, nil, nil)
}

// Allgather is collective.Lane's.
func (l *Lane) Allgather(in, out []byte, counts []int64) collective.Op {
	o := &l.op
	total, ok := deal(o.counts, o.places, counts)
	if !ok || total == 0 || len(out) != total || int64(len(in)) != counts[l.communicator.rank] {
		return l.overMessages(l.Lane.Allgather(in, out, counts))
	}
	return o.begin(C.GV_Iallgatherv, in, out)
}

// Alltoall is collective.Lane's.
func (l *Lane) Alltoall(in []byte, sendBytes []int64, out []byte, recvBytes []int64) collective.Op {
	o := &l.op
	n := l.communicator.size
	if len(sendBytes) != n || len(recvBytes) != n || sendBytes[l.communicator.rank] != recvBytes[l.communicator.rank] {
		return l.overMessages(l.Lane.Alltoall(in, sendBytes, out, recvBytes))
	}
	sent, fits := deal(o.counts, o.places, sendBytes)
	received, fit := deal(o.recvCounts, o.recvPlaces, recvBytes)
	if fits && len(in) != sent || fit && len(out) != received {
		return l.overMessages(l.Lane.Alltoall(in, sendBytes, out, recvBytes))
	}
	// Whether it fits a call of MPI is each member's own knowledge, and they must act alike.
	o.most[0], o.most[1] = 0, 0
	if !fits || !fit {
		o.most[1] = 1
	}
	o.sendBytes, o.recvBytes = append(o.sendBytes[:0], sendBytes...), append(o.recvBytes[:0], recvBytes...)
	o.begin(C.GV_Ialltoallv, in, out)
	o.agree = true
	return o
}

// AlltoallCounts is collective.Lane's.
func (l *Lane) AlltoallCounts(send, received []int64) collective.Op {
	n := l.communicator.size
	if len(send) != n || len(received) != n {
		return l.overMessages(l.Lane.AlltoallCounts(send, received))
	}
	o := &l.op
	for m := range n {
		o.counts[m], o.places[m] = 8, int32(8*m)
		o.recvCounts[m], o.recvPlaces[m] = 8, int32(8*m)
	}
	return o.begin(C.GV_Ialltoallv, bytesOf(send), bytesOf(received))
}

// Adasum is collective.Lane's.
func (l *Lane) Adasum(dt tensor.DType, data []byte, lengths []int, scale float64) collective.Op {
	return l.overMessages(l.Lane.Adasum(dt, data, lengths, scale))
}

// Reduce is collective.Lane's.
func (l *Lane) Reduce(root int, dt tensor.DType, op tensor.ReduceOp, in, out []byte, scale float64) collective.Op {
	return l.overMessages(l.Lane.Reduce(root, dt, op, in, out, scale))
}

// overMessages is an operation of the embedded lane, whose messages may fail.
func (l *Lane) overMessages(op collective.Op) collective.Op {
	l.other = sent{op, l.messages}
	return &l.other
}

// sent is an operation that consists of messages.
type sent struct {
	collective.Op
	messages *messages
}

func (s *sent) Advance() (bool, error) {
	s.messages.advance()
	done, err := s.Op.Advance()
	if err == nil {
		err = s.messages.err
	}
	if done {
		s.Op = nil
	}
	return done, err
}

// Reducescatter is collective.Lane's.
func (l *Lane) Reducescatter(dt tensor.DType, op tensor.ReduceOp, in, out []byte, counts []int64,
	scale float64) collective.Op {
	o := &l.op
	total, ok := deal(o.counts, o.places, counts)
	if l.deterministic || !ok || total == 0 || len(in) != total || int64(len(out)) != counts[l.communicator.rank] ||
		badReduction(dt, op, scale) {
		return l.overMessages(l.Lane.Reducescatter(dt, op, in, out, counts, scale))
	}
	for m, n := range o.counts {
		if int(n)%dt.Size() != 0 {
			return l.overMessages(l.Lane.Reducescatter(dt, op, in, out, counts, scale))
		}
		o.counts[m] = n / int32(dt.Size())
	}
	o.begin(C.GV_Ireduce_scatter, in, out)
	o.dt, o.reduce, o.scale = dt, op, scale
	return o
}
