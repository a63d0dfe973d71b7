package collective

import (
	"math/bits"

	"github.com/gorovod/gorovod/internal/core/reduce"
)

// allreduceDoubling is the allreduce of small data by recursive doubling: in round i each member exchanges all its data
// with the member whose number differs in bit i. If the size is no power of two, the first 2×extra members form pairs.
// The even member first folds its data into the odd one, sits out the rounds, and gets the result at the end.
//
// Both partners combine the lower one's operand first, and the members behind
// each operand are consecutive: all members get the same bits. 16-bit floats are
// rounded after each round. The last round applies the scale.
//
// With compression each partner adds the rounded data that both have sent, so both get the same sum. The result is
// rounded only if it goes to folded members. See wire.go.
//
// Steps: log2(size), two more unless size is a power of two. Bytes: each member
// sends, receives and reduces n a round. Memory: n. Chosen if the ring costs more, see model.go.
type allreduceDoubling struct {
	lane  *Lane
	todo  reduction
	extra int // how many members exceed a power of two
	last  int // number of the round that folds out, after rounds 1, 2, …

	round    int    // 0 folds in
	posted   bool   // this round's messages are posted
	data     []byte // this member's data so far: in, then out
	temp     []byte // received data, to be combined
	wire     []byte // compressed: the data to send, or the result received
	sum      bool   // this round's received data is to be combined
	peer     int
	toPeer   bool // a message of this round goes to peer
	fromPeer bool // a message of this round comes from peer
}

func (a *allreduceDoubling) start(l *Lane, todo reduction) Op {
	rounds := bits.Len(uint(l.size)) - 1
	*a = allreduceDoubling{
		lane: l, todo: todo,
		extra: l.size - 1<<rounds, last: rounds + 1,
		data: todo.in,
	}
	n := todo.sent(len(todo.in))
	if todo.compressed() {
		memory := l.temporary(2 * n)
		a.temp, a.wire = memory[:n], memory[n:]
	} else {
		a.temp = l.temporary(n)
	}
	return a
}

func (a *allreduceDoubling) Advance() (bool, error) {
	comm := a.lane.comm
	for a.round <= a.last {
		if !a.posted {
			a.plan()
			if a.fromPeer {
				a.lane.recv(a.peer, a.target())
			}
			if a.toPeer {
				a.lane.send(a.peer, a.outgoing())
			}
			a.posted = true
		}
		if a.fromPeer && !comm.Received(a.peer) || a.toPeer && !comm.Sent(a.peer) {
			return false, nil
		}
		switch {
		case a.sum:
			a.combine()
		case a.fromPeer && a.todo.compressed():
			a.todo.widen(a.todo.out, a.wire)
		}
		a.posted = false
		a.lane.moved++
		a.round++
	}
	a.lane.end()
	return true, nil
}

// plan decides this member's part in the round.
func (a *allreduceDoubling) plan() {
	rank := a.lane.rank
	paired := rank < 2*a.extra
	folded := paired && rank%2 == 0
	a.toPeer, a.fromPeer, a.sum = false, false, false
	switch {
	case a.round == 0 && paired:
		a.peer = rank ^ 1
		a.toPeer, a.fromPeer, a.sum = folded, !folded, !folded
	case a.round == a.last && paired:
		a.peer = rank ^ 1
		a.toPeer, a.fromPeer = !folded, folded
	case a.round > 0 && a.round < a.last && !folded:
		a.peer = a.member(a.number(rank) ^ 1<<(a.round-1))
		a.toPeer, a.fromPeer, a.sum = true, true, true
	}
}

// number counts the members that take part in the rounds; member is its inverse.
func (a *allreduceDoubling) number(rank int) int {
	if rank < 2*a.extra {
		return rank / 2
	}
	return rank - a.extra
}

func (a *allreduceDoubling) member(number int) int {
	if number < a.extra {
		return 2*number + 1
	}
	return number + a.extra
}

// target is the memory into which this round's message is received.
func (a *allreduceDoubling) target() []byte {
	switch {
	case a.sum:
		return a.temp
	case a.todo.compressed():
		return a.wire
	}
	return a.todo.out
}

// outgoing is this round's message.
func (a *allreduceDoubling) outgoing() []byte {
	if !a.todo.compressed() {
		return a.data
	}
	a.todo.narrow(a.wire, a.data)
	return a.wire
}

// combine combines this member's data with the received data, for the next round.
func (a *allreduceDoubling) combine() {
	scale := 1.0
	if a.round == a.last-1 {
		scale = a.todo.scale
	}
	if a.todo.compressed() {
		a.combineCompressed(scale)
		return
	}
	srcs := a.lane.srcs[:2]
	srcs[0], srcs[1] = a.data, a.temp
	if a.peer < a.lane.rank {
		srcs[0], srcs[1] = a.temp, a.data
	}
	reduce.Reduce(a.todo.dt, a.todo.op, a.todo.out, srcs, scale)
	a.data = a.todo.out
}

// combineCompressed is combine of the rounded data that both partners have sent. The sum of two is the same in both
// orders.
func (a *allreduceDoubling) combineCompressed(scale float64) {
	mine := a.data
	if a.toPeer {
		a.todo.widen(a.todo.out, a.wire)
		mine = a.todo.out
	}
	a.todo.add(a.todo.out, mine, a.temp, scale)
	if a.round == a.last-1 && a.extra > 0 {
		a.todo.round(a.todo.out, a.temp)
	}
	a.data = a.todo.out
}
