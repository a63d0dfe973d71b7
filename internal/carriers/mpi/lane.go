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

	"github.com/gorovod/gorovod/internal/base/tensor"
	"github.com/gorovod/gorovod/internal/core/collective"
	"github.com/gorovod/gorovod/internal/core/transport"
	"github.com/gorovod/gorovod/internal/observe/feed"
)

// limit is the most bytes in one nonblocking collective of MPI, because its counts are ints. Longer reductions and
// broadcasts consist of pieces, and other long operations of messages.
var limit = 1 << 30

// SetLimit lowers the bytes of one call of MPI, at least 8, so that tests need no memory for long operations. All
// processes call it, before they open a lane.
func SetLimit(bytes int) { limit = bytes }

// reducePiece is the most bytes in one allreduce of MPI. So the copy of an input that is also the output needs no more
// memory.
const reducePiece = 64 << 20

// Lane is one member's part in a lane whose data MPI carries, by a communicator of its own. It
// belongs to the lane's driver, as a collective.Lane does.
//
// The algorithms of package collective, over messages of MPI, do the operations that MPI lacks or does less well:
// Adasum, sums that travel in 16 bits, a fixed order of operands (Options.Deterministic), and allgathers, alltoalls and
// reducescatters beyond the limit.
type Lane struct {
	overMessages  *collective.Lane
	communicator  *Communicator
	messages      *messages
	packing       collective.Packing
	deterministic bool
	op            operation
	other         sent
	moved         uint64
}

var _ collective.Carrier = (*Lane)(nil)

// OpenLane makes the lane among the processes with these ranks, this one among them. All of them call it with the same
// tag. It blocks until they have, or ctx ends.
func (c *Communicator) OpenLane(ctx context.Context, tag int, ranks []int, o collective.Options) (collective.Carrier,
	error) {
	const tags = subsetTag // every MPI allows tags up to 32767
	own, err := c.group(ctx, tag%tags, ranks)
	if err != nil {
		return nil, fmt.Errorf("a communicator of ranks %v of MPI: %w", ranks, err)
	}
	m := newMessages(own)
	l := &Lane{overMessages: collective.NewLane(&transport.Lane{Comm: m}, o), communicator: own, messages: m,
		packing: collective.Packing{Rank: own.rank}, deterministic: o.Deterministic}
	l.op.init(l)
	return l, nil
}

// Moved adds the steps of MPI's collectives and those of its messages.
func (l *Lane) Moved() uint64 { return l.moved + l.overMessages.Moved() }

// Can says that nobody rings for this lane, because MPI makes progress only when it is called, and that nobody knows
// what MPI sends.
func (l *Lane) Can() collective.Abilities {
	can := l.overMessages.Can()
	can.Polled, can.Inspects = true, false
	can.Counts, can.Way = false, feed.ByMPI
	return can
}

// Sent is unknown, as Can says.
func (l *Lane) Sent() collective.Sent { return collective.Sent{} }

// Tune changes the operations over messages.
func (l *Lane) Tune(t collective.Tuning) { l.overMessages.Tune(t) }

// drainTime bounds how long Close waits for the end of an operation that all members have begun, and how long it then
// waits for its turn to call MPI.
const drainTime = time.Second

// Close frees the communicator. It brings an operation under way to its end if possible, because MPI could write to its
// memory at any later time. If that is impossible, or with a cause, MPI is lost to this process.
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

// Free returns the memory of packed parts.
func (l *Lane) Free() { l.packing.Free() }

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

// keep keeps the memory alive to which an operation under way may still write. It is pinned.
func (l *Lane) keep() {
	lib := l.communicator.library
	if lib.mu.TryLock() { // otherwise a goroutine is in MPI for ever, and keeps the library alive
		lib.kept = append(lib.kept, l)
		lib.mu.Unlock()
	}
}

// Start begins the operation by MPI's collective if there is one, otherwise by messages. The choice is the same on all
// members.
func (l *Lane) Start(a *collective.Arguments) collective.Op {
	if collective.Packs(a) {
		return l.packing.Start(l, a)
	}
	begun := false
	switch a.Kind {
	case collective.Allreduce:
		begun = l.allreduce(a)
	case collective.Broadcast:
		begun = l.broadcast(a)
	case collective.Barrier:
		l.op.begin(C.GV_Ibarrier, nil, nil)
		begun = true
	case collective.Allgather:
		begun = l.allgather(a)
	case collective.Alltoall:
		begun = l.alltoall(a)
	case collective.AlltoallCounts:
		begun = l.alltoallCounts(a)
	case collective.Reducescatter:
		begun = l.reducescatter(a)
	}
	if begun {
		return &l.op
	}
	l.other = sent{l.overMessages.Start(a), l.messages} // which also has the errors for wrong arguments
	return &l.other
}

// The following functions begin a collective of MPI, if it has one for the arguments.

func (l *Lane) allreduce(a *collective.Arguments) bool {
	if l.deterministic || a.Wire.For(a.DType, a.Reduce) != tensor.WireAsIs || len(a.In) == 0 ||
		len(a.In) != len(a.Out) || badReduction(a) || len(a.In)%a.DType.Size() != 0 {
		return false
	}
	o := l.op.begin(C.GV_Iallreduce, a.In, a.Out)
	o.reduces(a)
	o.piece = min(limit, reducePiece) / a.DType.Size() * a.DType.Size()
	return true
}

func (l *Lane) broadcast(a *collective.Arguments) bool {
	if a.Root < 0 || a.Root >= l.communicator.size || len(a.Out) == 0 {
		return false
	}
	o := l.op.begin(C.GV_Ibcast, nil, a.Out)
	o.root, o.piece = a.Root, limit
	return true
}

func (l *Lane) allgather(a *collective.Arguments) bool {
	o := &l.op
	total, ok := deal(o.counts, o.places, a.Counts)
	if !ok || total == 0 || len(a.Out) != total || int64(len(a.In)) != a.Counts[l.communicator.rank] {
		return false
	}
	o.begin(C.GV_Iallgatherv, a.In, a.Out)
	return true
}

func (l *Lane) alltoall(a *collective.Arguments) bool {
	o := &l.op
	n, me := l.communicator.size, l.communicator.rank
	if len(a.Counts) != n || len(a.Received) != n || a.Counts[me] != a.Received[me] {
		return false
	}
	sent, fits := deal(o.counts, o.places, a.Counts)
	received, fit := deal(o.recvCounts, o.recvPlaces, a.Received)
	if fits && len(a.In) != sent || fit && len(a.Out) != received {
		return false
	}
	// Only each member itself knows whether its data fits a call of MPI, but all members must act alike. If a member
	// sends nothing, or receives nothing, as in a large gather, Open MPI 4.1 does not end.
	o.most[0], o.most[1] = 0, 0
	if !fits || !fit || sent == 0 || received == 0 {
		o.most[1] = 1
	}
	o.sendBytes, o.recvBytes = append(o.sendBytes[:0], a.Counts...), append(o.recvBytes[:0], a.Received...)
	o.begin(C.GV_Ialltoallv, a.In, a.Out)
	o.agree = true
	return true
}

func (l *Lane) alltoallCounts(a *collective.Arguments) bool {
	n := l.communicator.size
	if len(a.Counts) != n || len(a.Received) != n {
		return false
	}
	o := &l.op
	for m := range n {
		o.counts[m], o.places[m] = 8, int32(8*m)
		o.recvCounts[m], o.recvPlaces[m] = 8, int32(8*m)
	}
	o.begin(C.GV_Ialltoallv, bytesOf(a.Counts), bytesOf(a.Received))
	return true
}

func (l *Lane) reducescatter(a *collective.Arguments) bool {
	o := &l.op
	total, ok := deal(o.counts, o.places, a.Counts)
	if l.deterministic || !ok || total == 0 || len(a.In) != total ||
		int64(len(a.Out)) != a.Counts[l.communicator.rank] || badReduction(a) {
		return false
	}
	size := a.DType.Size()
	for m, n := range o.counts {
		if int(n)%size != 0 {
			return false
		}
		o.counts[m] = n / int32(size)
	}
	o.begin(C.GV_Ireduce_scatter, a.In, a.Out)
	o.reduces(a)
	return true
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
