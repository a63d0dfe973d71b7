package carrier

import (
	"encoding/binary"

	"github.com/gorovod/gorovod/internal/core/collective"
)

// order puts the operations of all lanes on this rank's device one after the other, in an order that is the same on all
// ranks. NCCL requires that, because a kernel of one communicator may keep another one's kernel from the device. If two
// ranks then run two operations in different orders, each waits for the other for ever. A lane's log orders only the
// lane's own operations.
//
// The order is that of turns, numbers on which the members of a lane agree for each operation (Skeen's algorithm, from
// Birman and Joseph, "Reliable communication in the presence of failures", 1987):
//
//	propose   each member proposes a number above all that it has seen
//	agree     the members gather the proposals over the host's carrier; the largest is the operation's turn
//	issue     a member issues its operation when no other operation of this member has, or can still get, an earlier
//	          turn. Of equal turns, that of the process set with the smaller id is earlier
//
// The device keeps to that order: the stream of an operation waits for the one that was issued before it. So the first
// operation that has not ended goes on, as long as all drivers go on: another rank may need this rank's proposal before
// it issues the operation for which this rank's device waits. A driver therefore makes no call that waits for the
// device, such as one that frees memory (see bin). Only at the end of a lane it waits, and not for long.
//
// A job that has only the world's lane has one log for all operations, and does none of this. order belongs to the
// driver.
type order struct {
	shared bool    // there has been a second lane
	clock  uint64  // the largest number seen
	turns  []*turn // of the operations that are not issued
	last   *Lane   // the lane whose operation was issued last; nil if that is known to have ended
}

// turn is a lane's operation in the order.
type turn struct {
	lane   *Lane
	number uint64
	agreed bool
	waited bool          // the stream waits for the operation before
	op     collective.Op // gathers the proposals
	args   collective.Arguments
	mine   [8]byte
	all    []byte
	counts []int64
}

// queue begins to find a place in the order for the lane's next operation.
func (l *Lane) queue() {
	t, o := &l.turn, &l.devices.order
	t.lane, t.agreed, t.waited, t.op = l, true, false, nil
	n := len(l.members)
	if n == 1 || !o.shared {
		return
	}
	if t.all == nil {
		t.all, t.counts = make([]byte, 8*n), make([]int64, n)
		for m := range t.counts {
			t.counts[m] = 8
		}
	}
	o.clock++
	t.number, t.agreed = o.clock, false
	o.turns = append(o.turns, t)
	binary.LittleEndian.PutUint64(t.mine[:], t.number)
	t.args = collective.Arguments{Kind: collective.Allgather, In: t.mine[:], Out: t.all, Counts: t.counts}
	t.op = l.host.Start(&t.args)
}

// comes reports whether it is the turn of the lane's operation. The turn then lasts until issued or leave. The first
// time, comes makes the stream wait for the operation before.
func (l *Lane) comes() (bool, error) {
	t, o := &l.turn, &l.devices.order
	if t.op != nil {
		if done, err := t.op.Advance(); err != nil || !done {
			return false, err
		}
		t.op, t.agreed = nil, true
		for m := range l.members {
			t.number = max(t.number, binary.LittleEndian.Uint64(t.all[8*m:]))
		}
		o.clock = max(o.clock, t.number)
		l.moved++
	}
	for _, other := range o.turns {
		if other != t && other.before(t) {
			return false, nil
		}
	}
	if len(l.members) > 1 && !t.waited && o.last != nil && o.last != l {
		if err := l.place.context.Wait(l.stream, o.last.done); err != nil {
			return false, l.because(err)
		}
	}
	t.waited = true
	return true, nil
}

// alone reports whether the device has done all earlier operations. It must be the turn of the lane's operation.
func (l *Lane) alone() (bool, error) {
	last := l.devices.order.last
	if len(l.members) == 1 || last == nil || last == l {
		return true, nil
	}
	return l.place.context.Reached(last.done)
}

func (t *turn) before(other *turn) bool {
	return t.number < other.number || t.number == other.number && t.lane.id < other.lane.id
}

// issued gives the turn to the next operation. All of this one is in the stream, with the lane's event.
func (l *Lane) issued() {
	l.devices.order.leave(&l.turn)
	if len(l.members) > 1 {
		l.devices.order.last = l
	}
}

// ended notes that the operation that the lane has issued is over.
func (o *order) ended(l *Lane) {
	if o.last == l {
		o.last = nil
	}
}

func (o *order) leave(t *turn) {
	for i, other := range o.turns {
		if other == t {
			o.turns = append(o.turns[:i], o.turns[i+1:]...)
			return
		}
	}
}
